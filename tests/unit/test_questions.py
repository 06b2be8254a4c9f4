"""`slowscale init` at a terminal: its questions, and the plan that the answers make."""

import contextlib
import os
import pty
import re
import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slowscale as ss
from slowscale.cli.app import app
from slowscale.cli.questions import _usual_accuracy
from slowscale.plan import check_plan, read_plan

COMMAND = Path(sys.executable).with_name("slowscale")
FARMS = "state,firm,Cattle,price\n" + "IA,f1,120,1.5\nTX,f2,4000,2.5\nTX,f1,7,3.25\n"
# What is protected, summed, by what; public cells; three sizes; hide; accuracy; title; period; releases; files.
ANSWERS = ["", "Cattle", "state", "cells.csv", "50", "500", "1e5", "", "400", "", "2024", "", ""]


KNOWN = {}  # advice by what was asked, which takes seconds


def advise_once(records, *, asked=ss.advise, **wanted):
    question = repr((records, wanted))
    if question not in KNOWN:
        try:
            KNOWN[question] = asked(records, **wanted)
        except ss.ParameterError as refusal:
            KNOWN[question] = refusal
    if isinstance(KNOWN[question], ss.ParameterError):
        raise KNOWN[question]
    return KNOWN[question]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ss, "advise", advise_once)
    monkeypatch.setattr("slowscale.cli.plans.at_terminal", lambda: True)
    (tmp_path / "farms-2023.csv").write_text(FARMS)
    (tmp_path / "cells.csv").write_text("state\nIA\nTX\nWY\n")
    return tmp_path


def init(answers, *arguments):
    return CliRunner().invoke(app, ["init", "farms-2023.csv", *arguments], input="\n".join([*answers, ""]))


def answered(**changes):
    """Return the answers with some of them replaced, by their place; a list stands for several answers."""
    found = [[one] for one in ANSWERS]
    for place, new in changes.items():
        found[int(place[1:])] = new if isinstance(new, list) else [new]
    return [one for some in found for one in some]


def test_the_answers_make_a_plan_that_passes_check(folder):
    done = init(ANSWERS)
    assert done.exit_code == 0, done.output
    plan = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))
    best = ss.advise({"typical": 50, "large": 500, "largest": 1e5}, interval=400, bands={"largest": 2}).best
    stated = {name: value for name, value in best.to_dict().items() if name != "type"}
    assert plan["tables"] == {
        "cells": {
            "keys": {"file": "cells.csv", "by": ["state"]},
            "sums": {"Cattle": {"mechanism": best.kind, "unit": 1, **stated}},
        }
    }
    assert plan["data"] == {
        "path": "farms-2023.csv",
        "name": "farms",
        "types": {"state": "string", "firm": "string", "Cattle": "int64", "price": "decimal(18, 2)"},
    }
    assert plan["ledger"]["path"] == "farms.ledger"
    assert plan["ledger"]["caps"]["Cattle"] == {"mechanism": best.kind, "times": 5, **stated}
    assert plan["ledger"]["caps"]["*"] == {"mechanism": "gaussian", "sigma": 1e9}
    assert plan["release"] == {"period": "2024"}
    assert plan["report"]["sizes"] == [
        {"name": "typical record", "size": 50},
        {"name": "large record", "size": 500},
        {"name": "largest record", "size": 100_000},
    ]
    assert plan["publication"]["title"] == "Cattle by state"
    assert plan["output"] == {"folder": "published", "formats": ["parquet", "csv"], "report": "published/report.html"}
    assert "Within all caps." in done.output
    assert check_plan(read_plan("plan.toml")).refusal is None
    assert "4000" not in done.output  # no record's value


def test_the_caps_have_room_for_as_many_releases_as_were_answered(folder):
    assert init(answered(_11="2")).exit_code == 0
    for number in range(3):
        done = CliRunner().invoke(app, ["release", "plan.toml", "--yes", "--overwrite"])
        assert (done.exit_code == 0) == (number < 2), done.output
    assert isinstance(done.exception, ss.CapError)


def test_entities_totals_and_all_files(folder):
    sizes = ["50", "none", "1e5", "0.05", "", "90"]
    done = init(
        ["firm", "Cattle, price", "none", *sizes, "no", "400, 5 %", "0.5, 5 %", "Farms", "-", "9", "excel, report"]
    )
    assert done.exit_code == 0, done.output
    plan = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))
    assert plan["data"]["protect"] == "firm"
    assert "keys" not in plan["tables"]["total"]
    assert plan["tables"]["total"]["sums"]["price"]["unit"] == "0.01"
    assert plan["release"] == {}
    assert plan["report"]["sizes"][1] == {"name": "largest firm", "Cattle": 100_000, "price": 90}
    assert plan["publication"]["basic"] == ["published/total.xlsx"]
    assert plan["output"]["formats"] == ["parquet"]
    assert CliRunner().invoke(app, ["release", "plan.toml", "--yes"]).exit_code == 0
    assert {file.name for file in (folder / "published").iterdir()} == {"total.parquet", "total.xlsx", "report.html"}


def test_cells_of_the_data_are_declared_public_after_a_second_question(folder):
    done = init(answered(_3=["data", "n", "data", "y"]))
    assert done.exit_code == 0, done.output
    assert done.output.count("public knowledge which cells have records") == 2
    text = (folder / "plan.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["tables"]["cells"]["keys"] == {"by": ["state"], "from_data": True}
    assert "declares that it is public which cells have records" in text


WRONG = {
    "_0": ("farm", "is not one of state, firm, Cattle, price"),
    "_1": ("state", "is not one of Cattle, price"),
    "_2": ("Cattle", "is not one of state, firm"),
    "_3": ("farms-2023.csv", "is a file of the data"),
    "_4": ("1,5", "Type a number above 0"),
    "_6": ("10", "at least 500"),
    "_7": ("maybe", "Answer yes or no"),
    "_8": ("0", "Type a number above 0"),
    "_11": ("many", "whole number"),
    "_12": ("csv, pdf", "'pdf' is not one of"),
}


def test_a_wrong_answer_is_asked_again(folder):
    done = init(answered(**{place: [wrong, ANSWERS[int(place[1:])]] for place, (wrong, _) in WRONG.items()}))
    assert done.exit_code == 0, done.output
    assert [words for _, words in WRONG.values() if words not in done.output] == []
    assert init(ANSWERS, "other.toml").exit_code == 0
    assert (folder / "plan.toml").read_text() == (folder / "other.toml").read_text()


@pytest.mark.parametrize("answer", ["none.csv", "farms.csv", "other.csv", ""])
def test_a_file_without_the_public_cells_is_asked_again(folder, answer):
    (folder / "cells.csv").rename(folder / "public.csv")
    (folder / "other.csv").write_text("county\n01\n")
    done = init(answered(_3=[answer, "public.csv"]))
    assert done.exit_code == 0, done.output
    assert tomllib.loads((folder / "plan.toml").read_text())["tables"]["cells"]["keys"]["file"] == "public.csv"


def test_an_accuracy_that_nothing_meets_is_asked_again(folder):
    done = init(answered(_8=["1e200", "1e200", "400"]))
    assert done.exit_code == 0, done.output
    assert "too large to compute with" in done.output


SIZES = {"typical record": 50.0, "large record": 500.0, "largest record": 1e5}
HIDDEN = {"largest record": 2.0}


def noise_of(folder):
    """Return the noise of the plan."""
    ((_, table),) = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))["tables"].items()
    return {name: value for name, value in table["sums"]["Cattle"].items() if name != "unit"}


def advised(**wanted):
    """Return the noise that is advised for the sizes of the answers, as a plan has it."""
    best = ss.advise(SIZES, **wanted).best
    return {"mechanism": best.kind, **{name: value for name, value in best.to_dict().items() if name != "type"}}


def guessed(done):
    """Return how often the presence of a typical record is guessed, by the table of `slowscale check`."""
    return float(re.search(r"^ +50 \(typical record\) .*?([0-9.]+) %", done.output, re.MULTILINE)[1])


@pytest.mark.parametrize(("accuracy", "hide"), [("40", "yes"), ("20", "no"), ("10 %", "yes")])
def test_noise_that_hardly_protects_a_typical_record_is_answered_twice(folder, accuracy, hide):
    done = init(answered(_7=hide, _8=[accuracy, ""]))  # Enter takes the accuracy that protects it
    assert done.exit_code == 0, done.output
    assert done.output.count("Whether a typical record (50) is in the data can be guessed right") == 1
    assert guessed(done) < 60.2  # by the curve that is charged, which is up to 1 % higher
    done = init(answered(_7=hide, _8=[accuracy, accuracy]), "--overwrite")
    assert done.exit_code == 0, done.output
    assert guessed(done) > 70
    done = init(answered(_7=hide, _8=["4000"]), "--overwrite")
    assert done.exit_code == 0, done.output
    assert "can be guessed right" not in done.output


def test_large_sums_that_cannot_be_as_accurate_while_the_largest_value_is_hidden(folder):
    done = init(answered(_8=["500, 5%", "yes", ""]))
    assert done.exit_code == 0, done.output
    assert "while the value of the largest record is hidden" in done.output
    assert "where 2 is wanted" not in done.output
    # The least that is offered, as `init` asks for it, so that it is asked once.
    assert noise_of(folder) == advised(interval=500.0, relative=0.1, bands=HIDDEN, unit=1)
    with pytest.raises(ss.CalibrationError):
        ss.advise(SIZES, interval=500.0, relative=0.09, bands=HIDDEN, unit=1)
    done = init(answered(_8=["500, 5%", "no", ""]), "--overwrite")
    assert done.exit_code == 0, done.output
    assert noise_of(folder) == advised(interval=500.0, relative=0.05, bands=None, unit=1)


def test_every_question_explains_itself(folder):
    done = init([text for answer in ANSWERS for text in ("?", answer)])
    assert done.exit_code == 0, done.output
    from slowscale.cli.questions import EXPLANATIONS

    printed = " ".join(done.output.split())
    assert [topic for topic, text in EXPLANATIONS.items() if text not in printed] == []


def test_each_size_has_its_own_explanation(folder):
    shown = [init(answered(**{place: ["?"]})).output for place in ("_4", "_5", "_6")]
    for words in ("half of them", '"none" leaves it out', "The most that one may ever have"):
        assert sum(words in " ".join(one.split()) for one in shown) == 1


@pytest.mark.parametrize(("sizes", "usual"), [((106, 20_000, 1.6e6), "1000"), ((106, 1.6e6, 1.6e6), "1000")])
def test_the_proposed_accuracy_follows_from_all_sizes(sizes, usual):
    assert _usual_accuracy(sizes) == usual
    assert _usual_accuracy((50, 500, 1e5)) == "50"


def test_an_accuracy_that_is_many_times_a_typical_record_is_asked_twice(folder):
    done = init(answered(_8=["40000", "400"]))
    assert done.exit_code == 0, done.output
    assert "That is 800 times a typical record (50)" in done.output
    done = init(answered(_8=["40000", "40000"]), "--overwrite")
    assert done.exit_code == 0, done.output
    assert done.output.count("times a typical record") == 1


def test_the_columns_of_labels_can_be_asked_for_again(folder):
    (folder / "pairs.csv").write_text("state,sector\nIA,1\nIA,2\nTX,1\n")
    done = init(answered(_3=["pairs.csv", "back", "state", "cells.csv"]))
    assert done.exit_code == 0, done.output
    printed = " ".join(done.output.split())
    assert "group by state, sector, all columns of pairs.csv, or name a file with one row per state" in printed
    assert '"back" asks for the columns again' in printed
    assert tomllib.loads((folder / "plan.toml").read_text())["tables"]["cells"]["keys"]["file"] == "cells.csv"


def test_yes_or_no_is_asked_again(folder):
    done = init(answered(_3=["data", "perhaps", "y"]))
    assert done.exit_code == 0, done.output
    assert "Type y or n." in done.output


def test_an_unfinished_answer_writes_nothing(folder):
    before = set(folder.iterdir())
    for number in range(len(ANSWERS)):
        assert init(ANSWERS[:number]).exit_code != 0
        assert set(folder.iterdir()) == before


def test_an_existing_plan_is_kept(folder):
    (folder / "plan.toml").write_text("mine")
    done = init(ANSWERS)
    assert done.exception.code == "exists"
    assert "protected" not in done.output  # nothing was asked
    assert (folder / "plan.toml").read_text() == "mine"
    assert init(ANSWERS, "--overwrite").exit_code == 0


def test_a_ledger_that_exists_keeps_its_caps(folder):
    assert init(ANSWERS).exit_code == 0
    assert CliRunner().invoke(app, ["release", "plan.toml", "--yes"]).exit_code == 0
    done = init(answered(_11=[]), "next.toml")
    assert "room" not in done.output
    assert "caps" not in tomllib.loads((folder / "next.toml").read_text())["ledger"]


def test_the_largest_value_of_a_ledger_is_the_largest_size(folder):
    ss.Ledger(folder / "farms.ledger", dataset="farms", largest={"cattle": 100_000})
    done = init(answered(_6=["100001", ""], _11=[]))  # one above it, then Enter
    assert done.exit_code == 0, done.output
    assert done.output.count("Cattle of the largest that may occur: [100000]") == 2
    assert "It must be at most 100000" in done.output
    plan = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))
    assert plan["report"]["sizes"][-1] == {"name": "largest record", "size": 100_000}


@pytest.mark.parametrize("option", ["--no-questions", "--yes", "-y"])
def test_without_questions_the_choices_stay_open(folder, option):
    done = init([], option)
    assert done.exit_code == 0
    assert "open: the public cells" in done.output
    assert "still to be chosen" in str(CliRunner().invoke(app, ["check", "plan.toml"]).exception)


def test_without_a_terminal_nothing_is_asked(folder, monkeypatch):
    monkeypatch.setattr("slowscale.cli.plans.at_terminal", lambda: False)
    assert "open: the public cells" in init([]).output


@pytest.mark.filterwarnings("ignore::slowscale.core.errors.ConfidentialWarning")
def test_the_ledger_is_named_after_the_data_however_the_plan_is_written(folder):
    assert init([], "--no-questions").exit_code == 0
    advice = ss.advise({"typical": 50, "largest": 1e5}, interval=400)
    advice.plan("advised.toml", data="farms-2023.csv")
    advice.plan("without-data.toml")
    found = {name: tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8")) for name in ("plan", "advised")}
    assert {plan["ledger"]["path"] for plan in found.values()} == {"farms.ledger"}  # as with questions
    assert tomllib.loads((folder / "without-data.toml").read_text())["ledger"]["path"] == "records.ledger"


class Terminal:
    """The command at a real terminal."""

    def __init__(self, folder, *arguments):
        self.pid, self.file = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execv(COMMAND, [COMMAND, *arguments])
        self.seen = ""

    def wait_for(self, words, seconds=60):
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += os.read(self.file, 4096).decode(errors="replace")
            except OSError:  # it ended
                break
        assert words in self.seen, self.seen
        self.seen = self.seen.partition(words)[2]

    def type(self, text):
        os.write(self.file, text.encode())

    def end(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_at_a_real_terminal(folder):
    terminal = Terminal(folder, "init", "farms-2023.csv")
    for answer in ANSWERS:
        terminal.wait_for("]" if answer == "" else " ")
        terminal.type(f"{answer}\n")
    terminal.wait_for("Then: slowscale release plan.toml")
    assert terminal.end() == 0
    assert tomllib.loads((folder / "plan.toml").read_text())["release"] == {"period": "2024"}


def test_prose_and_tables_are_as_wide_as_the_terminal(folder):
    assert init(ANSWERS).exit_code == 0
    assert CliRunner().invoke(app, ["release", "plan.toml", "--yes"]).exit_code == 0
    terminal = Terminal(folder, "check", "plan.toml", "--overwrite")  # 80 columns
    seen = ""
    with contextlib.suppress(OSError):  # it ended
        while part := os.read(terminal.file, 4096):
            seen += part.decode(errors="replace")
    assert terminal.end() == 0
    assert "value known to" in seen
    # A word, such as a formula, is never broken.
    assert [line for line in seen.splitlines() if len(line) > 80] == []


def test_ctrl_c_at_a_real_terminal_writes_nothing(folder):
    before = set(folder.iterdir())
    terminal = Terminal(folder, "init", "farms-2023.csv")
    terminal.wait_for("What is protected")
    terminal.type("\nCattle\n")
    terminal.wait_for("labels?")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for("nothing was charged")
    assert terminal.end() == 130
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("first", ["SECRETFIRM,IA,777123", "SECRETFIRM,IA,2023-05-17", "SECRETFIRM,IA,1.5e3"])
def test_a_first_line_that_may_be_a_record_is_not_taken_for_names(folder, monkeypatch, first):
    (folder / "farms-2023.csv").write_text(f"{first}\nf2,TX,{first.split(',')[-1]}\n")
    done = init([""])
    assert done.exception.code == "first-line"
    monkeypatch.setattr("slowscale.cli.plans.at_terminal", lambda: False)
    quiet = init([])
    assert quiet.exception.code == "first-line"
    assert "SECRET" not in done.output + quiet.output + str(done.exception) + str(quiet.exception)
    assert not (folder / "plan.toml").exists()


def test_names_that_are_years_are_names_if_somebody_says_so(folder):
    (folder / "farms-2023.csv").write_text("state,2023\nIA,120\nTX,4000\n")
    done = init(["n", "", "", "none", *ANSWERS[4:]])
    assert done.exit_code == 0, done.output
    assert list(tomllib.loads((folder / "plan.toml").read_text())["tables"]["total"]["sums"]) == ["2023"]


def test_a_copy_of_the_records_is_not_a_file_of_public_cells(folder):
    (folder / "copy.csv").write_text(FARMS)
    os.link("farms-2023.csv", "link.csv")
    (folder / "summed.csv").write_text("state,cattle\nIA,120\nTX,4000\n")
    (folder / "twice.csv").write_text("state\nIA\nTX\nTX\n")
    wrong = ["copy.csv", "link.csv", "summed.csv", "twice.csv"]
    done = init(answered(_3=[*wrong, "cells.csv"]))
    assert done.exit_code == 0, done.output
    assert done.output.count("may reveal records") == 3
    assert "must be distinct" in done.output
    plan = (folder / "plan.toml").read_text()
    for name in wrong:
        (folder / "plan.toml").write_text(plan.replace('"cells.csv"', f'"{name}"'))
        found = CliRunner().invoke(app, ["check", "plan.toml"]).exception
        assert found.code == ("duplicate" if name == "twice.csv" else "not-public")
        assert "TX" not in str(found)


def test_the_column_of_entities_is_not_among_the_public_cells(folder):
    (folder / "firms.csv").write_text("state,firm\nIA,f1\nTX,f2\n")
    done = init(answered(_0="firm", _3=["firms.csv", "cells.csv"]))
    assert done.exit_code == 0, done.output
    assert "has the column 'firm'" in done.output


def test_names_that_could_be_answers_are_typed_in_quotes(folder):
    (folder / "farms-2023.csv").write_text('record,none,"a, b", c ,?\nf1,IA,120,1,5\nf2,TX,4000,2,6\n')
    sizes = ["50", "none", "1e5"] * 3
    done = init(['"record"', '"a, b", " c ","?"', '"none"', "data", "y", *sizes, "no", *["600"] * 3])
    assert "  '" not in done.output, done.output
    found = init(["", '"a, b"', "", "50", "none", "1e5", "no", "600", "", "", "", ""])
    assert found.exit_code == 0, found.output
    plan = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))
    assert "protect" not in plan["data"]
    assert list(plan["tables"]["total"]["sums"]) == ["a, b"]


@pytest.mark.parametrize("owner", ["the largest firm", "f" * 53])
def test_names_of_sizes_fit_whatever_the_column_of_entities_is_called(folder, owner):
    (folder / "farms-2023.csv").write_text(f"{owner},Cattle\nf1,120\nf2,4000\n")
    done = init([owner, "", "none", "50", "500", "1e5", "no", "600", "", "", "", ""])
    assert done.exit_code == 0, done.output
    plan = tomllib.loads((folder / "plan.toml").read_text(encoding="utf-8"))
    assert plan["data"]["protect"] == owner
    assert [size["name"] for size in plan["report"]["sizes"]] == ["typical entity", "large entity", "largest entity"]


def test_columns_that_check_would_refuse_are_refused_at_the_question(folder):
    (folder / "farms-2023.csv").write_text("*,count,x_se,x,g\n1,2,3,4,a\n2,3,4,5,b\n")
    done = init(["", "*", "count", "x, x_se", "x", "x_se", "none", "50", "none", "1e5", "no", "600", "", "", "", ""])
    assert done.exit_code == 0, done.output
    assert done.output.count("would be in the release twice") == 2


def test_without_numbers_nothing_is_asked_for_ever(folder):
    (folder / "farms-2023.csv").write_text("state,firm\nIA,f1\nTX,f2\n")
    done = init([""])
    assert done.exception.code == "empty"
    assert "--no-questions" in str(done.exception)


def test_control_characters_in_names_are_escaped_in_comments(folder):
    (folder / "farms-2023.csv").write_text("Ca\x01ttle,\x7fdate\n120,2020-01-01T00:00:00\n4000,2020-01-01T00:00:01\n")
    done = init(["", "", "none", "50", "none", "1e5", "no", "600", "", "", "", ""])
    assert done.exit_code == 0, done.output
    assert tomllib.loads((folder / "plan.toml").read_text())["tables"]["total"]["sums"].keys() == {"Ca\x01ttle"}


def test_the_hint_about_counts_passes_check(folder):
    assert init(answered(_3=["data", "y"])).exit_code == 0
    text = (folder / "plan.toml").read_text()
    lines = text.replace("# count =", "count =").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("# [ledger.caps.count]"))
    lines[start : start + 4] = [line.removeprefix("# ") for line in lines[start : start + 4]]
    (folder / "plan.toml").write_text("\n".join(lines))
    assert "count" in tomllib.loads("\n".join(lines))["tables"]["cells"]
    assert check_plan(read_plan("plan.toml")).refusal is None
    for number in range(6):
        done = CliRunner().invoke(app, ["release", "plan.toml", "--yes", "--overwrite"])
        assert (done.exit_code == 0) == (number < 5)


def test_files_of_other_releases_are_left_alone(folder):
    (folder / "published").write_text("a file")
    (folder / "published-2").mkdir()
    (folder / "published-2" / "cells.csv").write_text("state\n")
    assert init(ANSWERS).exit_code == 0
    plan = read_plan("plan.toml")
    assert Path(plan.output.folder).name == Path(plan.output.report).parent.name == "published-3"
    assert check_plan(plan).refusal is None


def test_a_ledger_that_cannot_be_charged_is_found_before_the_questions(folder):
    (folder / "farms.ledger").write_text("not a ledger")
    done = init(ANSWERS)
    assert isinstance(done.exception, ss.LedgerError)
    assert "protected" not in done.output
    (folder / "farms.ledger").unlink()
    ss.Ledger("farms.ledger", dataset="others")
    assert isinstance(init(ANSWERS).exception, ss.LedgerError)


def test_the_caps_of_a_ledger_limit_the_accuracy(folder):
    ss.Ledger("farms.ledger", {"price": ss.Gaussian(sigma=5).policy, "*": ss.Gaussian(sigma=1e9).policy})
    done = init(answered(_8=["40"], _9=[], _10=[], _11=[], _12=[]))
    assert done.exit_code != 0
    printed = " ".join(done.output.split())
    assert "the cap on" in printed
    assert "farms.ledger has this cap" in printed
    assert "A trial on simulated data can be made in another folder" in printed
    assert not (folder / "plan.toml").exists()


def test_a_folder_that_cannot_be_written_to_is_found_before_the_questions(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("slowscale.plan.outputs.new_file", refuse)
    done = init(ANSWERS)
    assert done.exception.code == "unwritable"
    assert "protected" not in done.output


def test_accuracies_and_sizes_say_how_they_are_read(folder):
    sizes = {"_4": ["1e-300", "1.200"], "_5": "1,200", "_6": "1e5"}
    done = init(answered(**sizes, _8=["150 %", "30, 40", "40"]))
    assert done.exit_code == 0, done.output
    for words in ("less than 100 %", "one of each", "1.200 is read as 1.2.", "1,200 is read as 1200.", "from 1e-30"):
        assert words in done.output
    assert "RuntimeWarning" not in done.output


def test_names_that_are_not_text_are_refused(folder, monkeypatch):
    for data, plan in (("farms\udcff.csv", "plan.toml"), ("farms-2023.csv", "plan\udcff.toml")):
        done = CliRunner().invoke(app, ["init", data, plan])
        assert done.exception.code == "encoding"
    typed = iter(["Farms \udcff", "Farms"])
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(typed))
    from slowscale.cli.questions import _ask, _text

    assert _ask("Title?", "title", "", _text) == "Farms"


def test_commands_can_be_pasted(folder):
    assert "slowscale init farms-2023.csv plan.toml" in str(init([], ".").exception)
    os.rename("farms-2023.csv", "my farms.csv")
    (folder / "my plan.toml").write_text("")
    refusal = str(CliRunner().invoke(app, ["init", "my farms.csv", "my plan.toml"]).exception)
    assert "slowscale check 'my plan.toml'" in refusal
    assert "init 'my farms.csv' OTHER.toml" in refusal


def test_public_cells_are_read_as_check_reads_them(folder):
    (folder / "farms-2023.csv").write_text("day,Cattle\n2023-01-31,5\n2023-02-01,7\n")
    (folder / "farms-more.csv").write_text("day,Cattle\n2023-03-01,5\n")
    (folder / "german.csv").write_text("day\n31.01.2023\n")
    (folder / "empty.csv").write_text("day\n")
    (folder / "days.csv").write_text("day\n2023-01-31\n")
    answers = answered(_2="day", _3=["german.csv", "empty.csv", "farms-more.csv", "days.csv"])
    done = CliRunner().invoke(app, ["init", "farms-*.csv"], input="\n".join([*answers, "", ""]))
    assert done.exit_code == 0, done.output
    assert done.output.count("Name another file") == 3
    assert "is a file of the data" in done.output

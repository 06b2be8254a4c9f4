"""What several test modules use, imported as `from helpers.bitsources import Recorded`. No tests are in here."""

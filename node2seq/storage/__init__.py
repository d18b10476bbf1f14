"""Files that are either whole or not there, and locks that end with their process."""

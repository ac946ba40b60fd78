"""What runs tasks, one file per framework; the file's name is the backend's name."""

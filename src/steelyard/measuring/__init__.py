"""Fair timing: clocks, schedules, samples, statistics, verification."""

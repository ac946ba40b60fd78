"""How to time fairly: clocks, schedules, samples, statistics, verification."""

"""The worker's half of PARAM's dialect: runs operators as PARAM does and returns its records."""

"""Results for people: tables, pages, charts, exports."""

"""Report pages: what is fastest, by how much, how sure, and since when; one file that opens offline, or a site of such pages."""

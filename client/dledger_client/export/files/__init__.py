"""Files of exports: Parquet, publishing, checksums of content.

content  A checksum of rows, whatever file, batch size or encoding they are in
parquet  One range as one Parquet file, and back
storage  Files of an export: published whole, synced, and exclusively
"""

"""What the files of a process for TLS are called; programs read this before they import gRPC."""

from typing import Final

AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
FILES: Final = (AUTHORITY, CERTIFICATE, KEY)
"""The names that cert-manager gives them."""
FOLDER_VARIABLE: Final = "DLEDGER_TLS_FOLDER"
"""Names the folder: to members, name servers, commands and health checks."""

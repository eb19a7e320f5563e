"""A picture of what a program printed, or of a terminal's screen."""

from html import escape


def terminal_picture(title: str, printed: str, *, width: int = 420) -> str:
    """Draw lines of text as SVG."""
    lines = printed.rstrip("\n").split("\n")
    height = 24 + 18 * len(lines)
    texts = [f'<text x="16" y="{30 + 18 * row}">{escape(line)}</text>' for row, line in enumerate(lines) if line]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e2e8f0;white-space:pre}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0f172a"/>',
            *texts,
            "</svg>\n",
        ]
    )

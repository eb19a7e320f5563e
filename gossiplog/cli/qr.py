"""QR codes in a terminal: what is shown in one place and wanted in another, without typing it.

A did has 56 characters, and nobody types them. Drawing needs `segno`, which is pure Python and brings no further packages.
"""

from __future__ import annotations

import click

from ..errors import LocalProtocolError

qr_option = click.option("--qr", "has_qr", is_flag=True, help="Draw it as a QR code, too, on stderr: pip install 'gossiplog[qr]'.")

_BLOCKS = (" ", "▄", "▀", "█")
"""Two modules, one above the other, from the lower one's bit up."""


def draw_qr(text: str) -> list[str]:
    """Draw a text as lines, two rows of modules in each, dark on light whatever the terminal's colours.

    Raises:
        LocalProtocolError: segno is not installed.
    """
    try:
        import segno
    except ImportError as error:
        raise LocalProtocolError("a QR code needs segno, which is not installed", hint="pip install 'gossiplog[qr]'") from error
    rows = [list(row) for row in segno.make(text, micro=False).matrix_iter(border=2)]
    rows += [[0] * len(rows[0])] * (len(rows) % 2)
    return [
        click.style("".join(_BLOCKS[2 * upper + lower] for upper, lower in zip(*pair, strict=True)), fg="black", bg="bright_white")
        for pair in zip(rows[::2], rows[1::2], strict=True)
    ]

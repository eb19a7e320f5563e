"""QR codes in a terminal, for text that somebody else needs and would have to type, such as a did of 56 characters.

Drawing needs `segno`, which is pure Python and has no dependencies.
"""

from __future__ import annotations

import click

from ..errors import LocalProtocolError

qr_option = click.option("--qr", "has_qr", is_flag=True, help="Also draw it as a QR code on stderr; needs pip install 'gossiplog[qr]'.")

_BLOCKS = (" ", "▄", "▀", "█")
"""Two modules, one above the other, by a number whose bit 0 is the lower one and bit 1 the upper one."""


def draw_qr(text: str) -> list[str]:
    """Draw a text's QR code as lines of two rows of modules each, dark on light on any terminal.

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

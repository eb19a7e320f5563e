"""Eight programs at once leave trails in one folder; one of them deletes and one backdates: python demo.py [FOLDER]."""

import subprocess
import sys
import tempfile
from pathlib import Path

from gossiplog.entry import Ed25519Signer

HERE = Path(__file__).parent
MANNERS = ["honest", "honest", "delete", "honest", "honest", "honest", "backdate", "honest"]


def main(folder: Path) -> int:
    """Run them, and then the audit."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = []
    for number, manner in enumerate(MANNERS):
        signer, key = Ed25519Signer.generate(), folder / f"{number}.pem"
        signer.save(key)
        print(f"program {number}, {manner:8}  {signer.did}")
        command = [sys.executable, str(HERE / "program.py"), str(folder / "trail"), f"program{number}", str(key), manner]
        programs.append(subprocess.Popen(command))
    if any(program.wait() for program in programs):
        return 1
    return subprocess.run([sys.executable, str(HERE / "audit.py"), str(folder / "trail")], check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))

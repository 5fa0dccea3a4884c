"""The command `streamrt` as `python -m streamrt`."""

from streamrt.cli import main

if __name__ == "__main__":
    main()

"""`python -m streamrt.cli`: the command `streamrt` without its script."""

from streamrt.cli import main

if __name__ == "__main__":
    main()

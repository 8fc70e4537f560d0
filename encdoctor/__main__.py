"""`python -m encdoctor`."""

from encdoctor.cli import main

if __name__ == "__main__":
    main()

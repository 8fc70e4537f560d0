if __name__ == "checks":  # the folder was found on sys.path under its bare name
    raise ImportError("import encdoctor.checks, not checks")

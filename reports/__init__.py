if __name__ == "reports":  # the folder was found on sys.path under its bare name
    raise ImportError("import encdoctor.reports, not reports")

"""File formats: read and write networks and export folders.

    nir/        NIR files: FoldedNetwork or IntNetwork <-> network.nir
    netx/       lava-dl netx files: IntNetwork <-> network.net
    xylo        the numbers of a Xylo chip: IntNetwork -> arguments of Rockpool
    folder      the export folder: both networks, reports, and a manifest with the hash of every file
    options     the options of each stage, shared by command line, run.toml, Python and manifest

Files are treated as untrusted: sizes are bounded, and errors name the file, the node and the key.
"""

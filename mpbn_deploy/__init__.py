"""mpbn_deploy: from a spiking network trained in PyTorch to integers on a neuromorphic chip.

The map, in the order of processing (each line is a file or folder here):

    errors          what can go wrong, as a tree          records      how every record is made
    cli, progress   what all commands share               files        writing files whole

    nn/             what you train with: LIF with MPBN, and the quantization-aware twin
    zoo/            network architectures                 data/        data sets
    train           COMMAND   data set + architecture -> model.pt
    train_loop      its epochs                            train_files  best, log, curves, resumption
    train_distributed   one training shared out over processes
    train_quantized     a trained network as its integer twin, to train on
    checkpoint      model.pt, safely read and written     pickle_traps   what makes a pickle dangerous

    graph           populations and connections, shared by float and integer networks
    float_ir        TrainedNetwork, FoldedNetwork
    frontend        torch module -> TrainedNetwork        foreign      neurons of snnTorch, SpikingJelly
    fold            TrainedNetwork -> FoldedNetwork       MPBN and BN gone, thresholds differ (Eq. 10)
    pool, compose   pooling and layers in a row, as synapses
    quantize        FoldedNetwork + profile -> IntNetwork
    scales, rounding              grids, and integers without overflow
    calibrate, joint_rounding     with data: the fewest flips
    evidence, thresholds          few thresholds, or none below one, for chips that hold no more
    int_ir          IntNetwork, the contract              bounds       what no input can exceed
    simulate        the reference simulator, NumPy        emulate      the fast one, torch (spike_convolution)

    nir_io/         NIR files                             netx_io/     lava-dl netx files
    hdf5            bounded reading for both
    lava_sim/       Lava's simulator
    flips, drift    float against integer, and which rounding flips a spike
    accuracy        of all networks on a whole test split       certificate  verify.json, found again
    comparison      executions against the reference, in parts that can be joined
    verify          COMMAND   executions compared bit by bit; float against integer

    hardware        profiles of chips (hw_profiles/)      hardware_keys, hardware_problems   their words
    place/          which neurons sit on which core, and which cores on which chip
    rules/          the design rules of a chip            host_layer   the first layer, off the chip
    activity        how often each neuron fires           energy       what a sample costs (energy_text)
    fit             COMMAND   all of these -> FitReport (fit_command, fit_text)
    advise          what would make a network fit, tried
    report/         all of it as one HTML page

    folder          the export folder: manifest, hashes, reading back
    export          COMMAND   the whole pipeline
    run             COMMAND   run an exported network     cluster      run and verify over several machines
    doctor          COMMAND   what of this machine works

Importing this package imports nothing heavy; import the module you need.
"""

__version__ = "0.2.0.dev0"

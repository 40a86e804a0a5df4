"""Run the whole pipeline from Python: train, fold, quantize, execute in Lava, fit on a chip.

python examples/quickstart.py
"""

from mpbn_deploy.api import (
    Training,
    accuracy,
    compare,
    emulate,
    fit,
    fold,
    load_dataset,
    load_profile,
    quantize,
    run_in_lava,
    simulate,
    trace,
    train,
)

digits = load_dataset("digits")
model = train(digits, "digits-cnn", mpbn="channel", timesteps=4, training=Training(epochs=2, seed=0))
print(f"float accuracy    {accuracy(model, digits.test):.2%}")

folded = fold(trace(model))  # MPBN and batch norm become thresholds
loihi2 = load_profile("loihi2")
network = quantize(folded, loihi2).network  # integers
predictions = emulate(network, digits.test.inputs).predictions
print(f"integer accuracy  {(predictions == digits.test.labels).mean():.2%}")

samples = digits.test.inputs[:4]
comparison = compare("Lava", simulate(network, samples), run_in_lava(network, samples))
print(f"Lava              {comparison.spikes_compared} spikes, {comparison.spikes_mismatched} different")

report = fit(network, loihi2)
print(f"{loihi2.title}     fits: {report.fits}, cores: {report.cores}")

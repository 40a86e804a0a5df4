"""The whole pipeline from Python: train, fold, quantize, run in Lava, check the fit.

python examples/quickstart.py
"""

from mpbn_deploy.data import load_dataset
from mpbn_deploy.execute import lava as lava_sim
from mpbn_deploy.execute.emulator import emulate
from mpbn_deploy.execute.reference import simulate
from mpbn_deploy.fit import fit
from mpbn_deploy.fold import fold
from mpbn_deploy.frontend import trace
from mpbn_deploy.hardware import load_profile
from mpbn_deploy.quantize import quantize
from mpbn_deploy.train import Training, accuracy, train
from mpbn_deploy.verify import compare

digits = load_dataset("digits")
model = train(digits, "digits-cnn", mpbn="channel", timesteps=4, training=Training(epochs=2, seed=0))
print(f"float accuracy    {accuracy(model, digits.test):.2%}")

folded = fold(trace(model))  # MPBN and batch norm gone, a threshold per channel
loihi2 = load_profile("loihi2")
network = quantize(folded, loihi2)  # integers
predictions = emulate(network, digits.test.inputs).predictions
print(f"integer accuracy  {(predictions == digits.test.labels).mean():.2%}")

samples = digits.test.inputs[:4]
comparison = compare("Lava", simulate(network, samples), lava_sim.run(network, samples))
print(f"Lava              {comparison.spikes_compared} spikes, {comparison.spikes_mismatched} different")

report = fit(network, loihi2)
print(f"{loihi2.title}     fits: {report.fits}, cores: {report.cores}")

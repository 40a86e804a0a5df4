#include <$name.h>

static net_input_t sample[NET_INPUTS]; // fill it with values from NET_INPUT_MINIMUM to NET_INPUT_MAXIMUM
static net_score_t scores[NET_OUTPUTS];

void setup() { Serial.begin(115200); }

void loop() {
  const unsigned long before = micros();
  const int found = net_run(sample, 0, scores);
  const unsigned long took = micros() - before;
  Serial.print(found < 0 ? "error " : "class ");
  Serial.print(found);
  Serial.print(", microseconds: ");
  Serial.println(took);
  delay(1000);
}

// Reference rows of mse and l1.
#include <cmath>

#include "ops/cpu/reference/values.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

template <bool Squared>
void forward(const OpCall& call) {
  const Values prediction = load(call.in[0]), target = load(call.in[1]);
  double sum = 0;
  for (size_t i = 0; i < target.size(); ++i) {
    const double difference = prediction[i] - target[i];
    sum += Squared ? difference * difference : std::abs(difference);
  }
  store(call.out[0], {sum / static_cast<double>(target.size())});
}

template <bool Squared>
void backward(const OpCall& call, Views dout, Gradients din) {
  const Values prediction = load(call.in[0]), target = load(call.in[1]);
  const double scale = load(dout[0])[0] / static_cast<double>(target.size());
  Values gradient(target.size());
  for (size_t i = 0; i < target.size(); ++i) {
    const double difference = prediction[i] - target[i];
    const double sign = static_cast<double>(difference > 0) - static_cast<double>(difference < 0);
    gradient[i] = scale * (Squared ? 2 * difference : sign);
  }
  store_gradient(operand(din, 0), gradient);
  for (double& value : gradient) value = -value;
  store_gradient(operand(din, 1), gradient);
}

}  // namespace

void add_loss(Backend& backend) {
  backend.add("mse", {forward<true>, guarded<backward<true>>});
  backend.add("l1", {forward<false>, guarded<backward<false>>});
}

}  // namespace vitrine::reference

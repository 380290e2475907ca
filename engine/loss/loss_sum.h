// What a loss gives: a sum and its weight, never a mean. The engine divides once, by the weight of the whole step over
// all micro-batches and ranks, so that no way of splitting a batch changes the result.
#pragma once

namespace sluice::engine {

struct LossSum {
  double sum = 0;     // of the weighted losses, in nats: -log p(label) over the scored slots
  double weight = 0;  // of the tokens or sequences in it: the number of scored slots

  LossSum& operator+=(const LossSum& other) {
    sum += other.sum;
    weight += other.weight;
    return *this;
  }
};

}  // namespace sluice::engine

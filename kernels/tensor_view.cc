#include "kernels/tensor_view.h"

#include <string>

namespace sluice::kernels {

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

}  // namespace sluice::kernels

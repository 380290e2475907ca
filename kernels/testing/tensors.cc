#include "kernels/testing/tensors.h"

#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

namespace sluice::kernels::testing {
namespace {

constexpr uint8_t kGuard = 0x5A;
constexpr int64_t kGuardElements = 16;

Device test_device;  // the tests of one program run one after the other

bool HasGpu() {
  static const bool has_gpu = c10::cuda::device_count() > 0;
  return has_gpu;
}

}  // namespace

std::string Name(Backend backend) { return backend == Backend::kCpu ? "cpu" : "cuda"; }

std::vector<Backend> AvailableBackends() {
  std::vector<Backend> backends = {Backend::kCpu};
  if (HasGpu()) backends.push_back(Backend::kCuda);
  return backends;
}

Device TestDevice() { return test_device; }

void SetTestDevice(Device device) { test_device = device; }

void WaitForTestDevice() {
  if (test_device.is_cuda()) cudaDeviceSynchronize();
}

template <typename T>
T* SharedAllocator<T>::allocate(size_t count) {
  if (!HasGpu()) return static_cast<T*>(::operator new(count * sizeof(T)));
  void* data = nullptr;
  if (cudaMallocManaged(&data, count * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
  return static_cast<T*>(data);
}

template <typename T>
void SharedAllocator<T>::deallocate(T* data, size_t) {
  HasGpu() ? static_cast<void>(cudaFree(data)) : ::operator delete(data);
}

template struct SharedAllocator<uint8_t>;

HostTensor::HostTensor(DType dtype, Shape shape, int64_t row_stride)
    : dtype_(dtype), shape_(shape), row_stride_(std::max(row_stride, shape.row_elements())) {
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  bytes_.assign(static_cast<size_t>((rows * row_stride_ + kGuardElements) * SizeOf(dtype)), kGuard);
}

void HostTensor::Set(int64_t element, double value) {
  const int64_t row = element / shape_.row_elements();
  const int64_t at = row * row_stride_ + element % shape_.row_elements();
  uint8_t* to = bytes_.data() + at * SizeOf(dtype_);
  const auto store = [to](auto stored) { std::memcpy(to, &stored, sizeof(stored)); };
  if (dtype_ == DType::kFloat32) store(static_cast<float>(value));
  if (dtype_ == DType::kBFloat16) store(BFloat16(static_cast<float>(value)));
  if (dtype_ == DType::kInt32) store(static_cast<int32_t>(value));
  if (dtype_ == DType::kInt64) store(static_cast<int64_t>(value));
  if (dtype_ == DType::kFloat64) store(value);
  if (dtype_ == DType::kInt16) store(static_cast<int16_t>(value));
  if (dtype_ == DType::kFloat8) store(Float8(static_cast<float>(value)));
}

HostTensor HostTensor::Random(DType dtype, Shape shape, uint64_t seed, double scale, int64_t row_stride) {
  HostTensor tensor(dtype, shape, row_stride);
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  for (int64_t i = 0; i < shape.elements(); ++i) tensor.Set(i, normal(engine));
  return tensor;
}

HostTensor HostTensor::Of(DType dtype, Shape shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.Set(static_cast<int64_t>(i), values[i]);
  return tensor;
}

HostTensor HostTensor::OfInts(const std::vector<int32_t>& values) {
  return Of(DType::kInt32, {static_cast<int64_t>(values.size())}, std::vector<double>(values.begin(), values.end()));
}

HostTensor HostTensor::Poisoned(DType dtype, Shape shape, int64_t row_stride) {
  HostTensor tensor(dtype, shape, row_stride);
  const double poison =
      IsFloating(dtype) ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<int32_t>::min();
  for (int64_t i = 0; i < shape.elements(); ++i) tensor.Set(i, poison);
  return tensor;
}

TensorView HostTensor::view() {
  if (bytes_.empty()) return {};
  TensorView view(bytes_.data(), dtype_, shape_, TestDevice());
  view.row_stride = row_stride_;
  return view;
}

ConstTensorView HostTensor::view() const { return const_cast<HostTensor*>(this)->view(); }

std::vector<double> HostTensor::values() const {
  std::vector<double> values(static_cast<size_t>(shape_.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t element = static_cast<int64_t>(i);
    const int64_t row = element / shape_.row_elements();
    const uint8_t* from = bytes_.data() + (row * row_stride_ + element % shape_.row_elements()) * SizeOf(dtype_);
    const auto load = [from](auto stored) {
      std::memcpy(&stored, from, sizeof(stored));
      return stored;
    };
    if (dtype_ == DType::kFloat32) values[i] = load(float{});
    if (dtype_ == DType::kBFloat16) values[i] = static_cast<float>(load(BFloat16{}));
    if (dtype_ == DType::kInt32) values[i] = load(int32_t{});
    if (dtype_ == DType::kInt64) values[i] = static_cast<double>(load(int64_t{}));
    if (dtype_ == DType::kFloat64) values[i] = load(double{});
    if (dtype_ == DType::kInt16) values[i] = load(int16_t{});
    if (dtype_ == DType::kFloat8) values[i] = static_cast<float>(load(Float8{}));
  }
  return values;
}

bool HostTensor::gaps_untouched() const {
  const int64_t size = SizeOf(dtype_);
  const int64_t rows = shape_.rank() == 0 ? 1 : shape_[0];
  const auto untouched = [&](int64_t begin, int64_t end) {
    return std::all_of(bytes_.begin() + begin * size, bytes_.begin() + end * size,
                       [](uint8_t byte) { return byte == kGuard; });
  };
  for (int64_t row = 0; row < rows; ++row) {
    if (!untouched(row * row_stride_ + shape_.row_elements(), (row + 1) * row_stride_)) return false;
  }
  return untouched(rows * row_stride_, rows * row_stride_ + kGuardElements);
}

std::string Difference(const HostTensor& got, const std::vector<double>& want, Tolerance tolerance) {
  const std::vector<double> values = got.values();
  if (values.size() != want.size()) return absl::StrCat(values.size(), " elements, expected ", want.size());
  if (!got.gaps_untouched()) return "wrote outside the tensor";
  size_t worst = 0;
  double worst_excess = 0.0;
  size_t count = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (values[i] == want[i]) continue;  // infinities
    const double excess = std::abs(values[i] - want[i]) - (tolerance.absolute + tolerance.relative * std::abs(want[i]));
    if (excess <= 0.0) continue;  // false for NaN
    ++count;
    if (count == 1 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (count == 0) return "";
  return absl::StrCat(count, " of ", want.size(), " elements differ; element ", worst, " is ", values[worst],
                      ", expected ", want[worst]);
}

}  // namespace sluice::kernels::testing

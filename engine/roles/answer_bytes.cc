#include "engine/roles/answer_bytes.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

class Writer {
 public:
  explicit Writer(std::string* bytes) : bytes_(bytes) {}

  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_->append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    Elements(values.data(), values.size());
  }
  void operator()(const std::string& text) { Elements(text.data(), text.size()); }
  template <typename T>
  void operator()(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value.has_value()) (*this)(*value);
  }

 private:
  template <typename T>
  void Elements(const T* data, size_t count) {
    static_assert(std::is_arithmetic_v<T>);
    (*this)(static_cast<uint64_t>(count));
    bytes_->append(reinterpret_cast<const char*>(data), count * sizeof(T));
  }

  std::string* bytes_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }
  bool failed() const { return failed_; }

  template <typename T>
  void operator()(T& value) {
    Elements(&value, 1);
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    values.resize(Count(sizeof(T)));
    Elements(values.data(), values.size());
  }
  void operator()(std::string& text) {
    text.resize(Count(1));
    Elements(text.data(), text.size());
  }
  template <typename T>
  void operator()(std::optional<T>& value) {
    bool there = false;
    (*this)(there);
    value.reset();
    if (there) (*this)(value.emplace());
  }

 private:
  // Of the elements that follow; 0 where so many are not there.
  size_t Count(size_t element_bytes) {
    uint64_t count = 0;
    (*this)(count);
    if (count > rest_.size() / element_bytes) failed_ = true;
    return failed_ ? 0 : static_cast<size_t>(count);
  }
  template <typename T>
  void Elements(T* data, size_t count) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t size = count * sizeof(T);
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      rest_ = {};
      return;
    }
    if (size > 0) std::memcpy(data, rest_.data(), size);
    rest_.remove_prefix(size);
  }

  absl::string_view rest_;
  bool failed_ = false;
};

// The one list of what travels, for both ways.
template <typename Archive, typename AnswerType>
void Visit(AnswerType& answer, Archive& archive) {
  archive(answer.place);
  archive(answer.row);
  archive(answer.sample);
  archive(answer.response_ids);
  archive(answer.text);
  archive(answer.truncated);
  archive(answer.weight_version);
  archive(answer.rollout_log_prob);
  archive(answer.score);
  archive(answer.filter_value);
  archive(answer.components);
  archive(answer.extracted);
  archive(answer.old_log_prob);
  archive(answer.ref_log_prob);
  archive(answer.value);
  archive(answer.advantage);
  archive(answer.returns);
  archive(answer.importance_weight);
  archive(answer.mask);
  archive(answer.log_prob);
  archive(answer.selected);
  archive(answer.learned);
}

}  // namespace

void AppendAnswer(const Answer& answer, std::string* bytes) {
  Writer writer(bytes);
  Visit(answer, writer);
}

absl::Status ParseAnswers(absl::string_view bytes, std::vector<Answer>* answers) {
  Reader reader(bytes);
  while (!reader.done()) {
    Answer answer;
    Visit(answer, reader);
    if (reader.failed()) return absl::DataLossError(absl::StrCat("answers of another rank: ", bytes.size(), " bytes"));
    answers->push_back(std::move(answer));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine

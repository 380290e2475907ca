// An answer on its way from one rank to another: everything of it but the pointer to its prompt.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/roles/answer_batch.h"

namespace sluice::engine {

// Adds `answer` to `bytes`, in this program's own form: ranks of a job run the same program.
void AppendAnswer(const Answer& answer, std::string* bytes);

// Adds the answers that AppendAnswer wrote one after another; their prompt_ids are null. DataLoss: `bytes` are no such
// thing.
absl::Status ParseAnswers(absl::string_view bytes, std::vector<Answer>* answers);

}  // namespace sluice::engine

// Unicode normal forms (UAX #15) with source ranges, as far as Hugging Face `tokenizers` knows them: code points newer
// than its tables (kNormOpaque in char_class.h) stay as they are.
#pragma once

#include "engine/tokenizer/aligned_text.h"

namespace sluice::engine {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Whether a quick look shows that the text is in the form already. False says nothing.
bool IsSurelyInForm(UnicodeForm form, std::string_view text);

// Appends the form of the original to `out`. Characters that arise from several get the source range of all of those.
void AppendInForm(UnicodeForm form, std::string_view original, AlignedText* out);

}  // namespace sluice::engine

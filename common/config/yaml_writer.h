// A JobSpec back to YAML: what `sluice config job.yaml` and `-o yaml` print. Reading the text gives the same JobSpec.
#pragma once

#include <string>

#include "common/config/schema.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// Every key, in the order of the table; keys that are unset are null.
std::string WriteJobSpec(const v1::JobSpec& spec);

// The value of one key of `section`, as WriteJobSpec writes it.
std::string YamlValue(const Key& key, const google::protobuf::Message& section);

// `text` as a YAML scalar on one line: as it is where that reads back as the same text in any place, else in quotes.
// `${` is written as `$${`.
std::string YamlText(const std::string& text);

}  // namespace sluice

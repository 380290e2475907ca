#include "engine/checkpoint/manifest.h"

#include <set>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using nlohmann::json;

constexpr char kFormatName[] = "sluice-checkpoint";

std::string ChecksumText(uint32_t checksum) { return absl::StrFormat("%08x", checksum); }

std::string ChecksumOf(const std::string& text) { return ChecksumText(Crc32c(std::as_bytes(std::span(text)))); }

bool IsPlainName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name != kManifestName;
}

json ToJson(const std::vector<FileEntry>& entries) {
  json list = json::array();
  for (const FileEntry& entry : entries) {
    list.push_back({{"name", entry.name}, {"bytes", entry.bytes}, {"crc32c", ChecksumText(entry.crc32c)}});
  }
  return list;
}

absl::Status CheckNames(const std::vector<FileEntry>& entries) {
  std::set<std::string> names;
  for (const FileEntry& entry : entries) {
    if (!IsPlainName(entry.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", entry.name, "\" cannot be the name of a file of a checkpoint"));
    }
    if (!names.insert(entry.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("the file ", entry.name, " is given twice (by two ranks?)"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileEntry>> EntriesFromJson(const json& list) {
  const absl::Status wrong = absl::DataLossError("the list of files is malformed");
  if (!list.is_array()) return wrong;
  std::vector<FileEntry> entries;
  for (const json& item : list) {
    if (!item.is_object() || item.size() != 3 || !item.contains("name") || !item.contains("bytes") ||
        !item.contains("crc32c")) {
      return wrong;
    }
    const json &name = item["name"], &bytes = item["bytes"], &checksum = item["crc32c"];
    FileEntry entry;
    if (!name.is_string() || !bytes.is_number_unsigned() || !checksum.is_string()) return wrong;
    entry.name = name.get<std::string>();
    entry.bytes = bytes.get<uint64_t>();
    if (!absl::SimpleHexAtoi(checksum.get<std::string>(), &entry.crc32c)) return wrong;
    entries.push_back(std::move(entry));
  }
  if (!CheckNames(entries).ok()) return wrong;
  return entries;
}

}  // namespace

absl::StatusOr<std::string> SerializeManifest(const Manifest& manifest) {
  if (manifest.step < 0 || manifest.world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("step ", manifest.step, ", world size ", manifest.world_size));
  }
  RETURN_IF_ERROR(CheckNames(manifest.files));
  ASSIGN_OR_RETURN(json metadata, ParseJsonObject(manifest.metadata_json, "metadata"));
  json value = {{"format", kFormatName},           {"format_version", kCheckpointFormatVersion},
                {"step", manifest.step},           {"world_size", manifest.world_size},
                {"files", ToJson(manifest.files)}, {"metadata", std::move(metadata)}};
  // The checksum is of the text without itself: one line, sorted keys, no spaces.
  ASSIGN_OR_RETURN(const std::string body, DumpJson(value, -1, kManifestName));
  value["manifest_crc32c"] = ChecksumOf(body);
  ASSIGN_OR_RETURN(const std::string text, DumpJson(value, 1, kManifestName));
  return text + "\n";
}

absl::StatusOr<Manifest> ParseManifest(const std::string& text) {
  absl::StatusOr<json> parsed = ParseJsonObject(text, kManifestName);
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  json& value = *parsed;
  if (value.value("format", json()) != kFormatName) {
    return absl::DataLossError(absl::StrCat(kManifestName, ": is not the manifest of a checkpoint"));
  }
  const json version = value.value("format_version", json());
  if (version != kCheckpointFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(kManifestName, ": format version ", version.dump(),
                                                      ", this program reads version ", kCheckpointFormatVersion));
  }
  const json checksum = value.value("manifest_crc32c", json());
  value.erase("manifest_crc32c");
  const absl::StatusOr<std::string> body = DumpJson(value, -1, kManifestName);
  if (!body.ok() || checksum != ChecksumOf(*body)) {
    return absl::DataLossError(absl::StrCat(kManifestName, ": was changed after it was written (checksum differs)"));
  }
  // From here on the contents are what SerializeManifest wrote; the checks are for a writer of another make.
  const absl::Status wrong = absl::DataLossError(absl::StrCat(kManifestName, ": lacks or has extra keys"));
  const json step = value.value("step", json()), world_size = value.value("world_size", json());
  if (value.size() != 6 || !step.is_number_unsigned() || !world_size.is_number_unsigned() || !value.contains("files") ||
      !value.contains("metadata") || !value["metadata"].is_object()) {
    return wrong;
  }
  Manifest manifest;
  manifest.step = step.get<int64_t>();
  manifest.world_size = world_size.get<int64_t>();
  ASSIGN_OR_RETURN(manifest.files, EntriesFromJson(value["files"]));
  ASSIGN_OR_RETURN(manifest.metadata_json, DumpJson(value["metadata"], -1, kManifestName));
  return manifest;
}

std::string SerializeFileEntries(const std::vector<FileEntry>& entries) {
  return ToJson(entries).dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<std::vector<FileEntry>> ParseFileEntries(const std::string& text) {
  return EntriesFromJson(json::parse(text, nullptr, /*allow_exceptions=*/false));
}

}  // namespace sluice::engine

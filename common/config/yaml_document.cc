#include "common/config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/scalar.h"
#include "common/config/suggest.h"

namespace sluice {
namespace {

constexpr char kMergeKey[] = "<<";

size_t CountNodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += CountNodes(item);
  for (const YamlEntry& entry : node.entries) count += CountNodes(entry.value);
  return count;
}

// Whether the line's indentation holds a tab before something that matters.
bool HasTabInIndentation(const std::string& line) {
  const size_t content = line.find_first_not_of(" \t");
  if (content == std::string::npos || line[content] == '#') return false;
  return line.substr(0, content).find('\t') != std::string::npos;
}

// Builds the tree from yaml-cpp's events. The parser cannot be stopped from inside an event, so after an error that
// makes the rest meaningless the remaining events are ignored.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const std::vector<std::string>& lines, const std::string& source, const YamlLimits& limits,
              std::vector<ConfigError>* errors)
      : lines_(lines), source_(source), limits_(limits), errors_(errors) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) Stop(mark.line + 1, "a second document begins here; a job file holds one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!Begin(mark, "?")) return;
    YamlNode node;
    node.line = mark.line + 1;
    Finish(std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (!Begin(mark, tag)) return;
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.line = mark.line + 1;
    node.text = value;
    node.plain = tag == "?";
    Finish(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (stopped_) return;
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      return Stop(mark.line + 1, "an alias inside the value that it stands for");
    }
    nodes_ += found->second.nodes;
    if (nodes_ > limits_.nodes) return Stop(mark.line + 1, TooManyNodes());
    Finish(found->second.node, YAML::NullAnchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    Open(mark, tag, anchor, style, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    Open(mark, tag, anchor, style, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

  bool stopped() const { return stopped_; }
  YamlNode TakeRoot() { return std::move(root_); }

 private:
  struct Anchored {
    YamlNode node;
    size_t nodes;
  };
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor;
    bool flow;
    bool has_key = false;
    YamlEntry entry;                   // the entry whose value comes next
    std::vector<YamlEntry> merges;     // values of `<<`
    std::map<std::string, int> lines;  // keys seen and where
  };

  std::string TooManyNodes() const {
    return absl::StrCat("more than ", limits_.nodes, " values once aliases are written out");
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == YamlNode::Kind::kList) {
        absl::StrAppend(&path, "[", frame.node.items.size(), "]");
      } else if (frame.has_key) {
        absl::StrAppend(&path, path.empty() ? "" : ".", frame.entry.key);
      }
    }
    return path;
  }

  void Report(int line, const std::string& message) { errors_->push_back({source_, line, Path(), message, {}}); }
  void Stop(int line, const std::string& message) {
    Report(line, message);
    stopped_ = true;
  }

  bool Begin(const YAML::Mark& mark, const std::string& tag) {
    if (stopped_) return false;
    const int line = mark.line + 1;
    if (++nodes_ > limits_.nodes) Stop(line, TooManyNodes());
    if (static_cast<int>(frames_.size()) >= limits_.depth) {
      Stop(line, absl::StrCat("nested more than ", limits_.depth, " levels deep"));
    }
    if (tag != "?" && tag != "!") {
      Report(line, absl::StrCat("tags (", tag, ") are not used here: a key's type is fixed"));
    }
    const bool in_flow = !frames_.empty() && frames_.back().flow;
    if (!in_flow && mark.line < static_cast<int>(lines_.size())) {
      const std::string& text = lines_[mark.line];
      if (HasTabInIndentation(text) && text.find_first_not_of(" \t") == static_cast<size_t>(mark.column)) {
        Stop(line, "a tab in the indentation (YAML indents with spaces)");
      }
    }
    return !stopped_;
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value style,
            YamlNode::Kind kind) {
    if (!Begin(mark, tag)) return;
    Frame frame;
    frame.node.kind = kind;
    frame.node.line = mark.line + 1;
    frame.anchor = anchor;
    frame.flow = style == YAML::EmitterStyle::Flow || (!frames_.empty() && frames_.back().flow);
    frames_.push_back(std::move(frame));
  }

  void Close() {
    if (stopped_) return;
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    Merge(&frame);
    Finish(std::move(frame.node), frame.anchor);
  }

  void Finish(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) anchors_[anchor] = {node, CountNodes(node)};
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == YamlNode::Kind::kList) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.has_key) {
      TakeKey(&frame, node);
    } else {
      TakeValue(&frame, std::move(node));
    }
  }

  void TakeKey(Frame* frame, const YamlNode& node) {
    if (node.kind != YamlNode::Kind::kScalar) {
      return Stop(node.line, absl::StrCat("a key must be a text, this one is ", KindName(node.kind)));
    }
    frame->entry = {node.text, node.line, {}};
    frame->has_key = true;
  }

  void TakeValue(Frame* frame, YamlNode value) {
    const auto [first, is_new] = frame->lines.emplace(frame->entry.key, frame->entry.line);
    if (!is_new) {
      Report(frame->entry.line, absl::StrCat("the key is given twice (lines ", first->second, " and ",
                                             frame->entry.line, "); which one is meant?"));
    } else {
      frame->entry.value = std::move(value);
      auto& target = frame->entry.key == kMergeKey ? frame->merges : frame->node.entries;
      target.push_back(std::move(frame->entry));
    }
    frame->has_key = false;
  }

  void Merge(Frame* frame) {
    for (YamlEntry& merge : frame->merges) {
      std::vector<YamlNode> maps;
      if (merge.value.kind == YamlNode::Kind::kList) {
        maps = std::move(merge.value.items);
      } else {
        maps.push_back(std::move(merge.value));
      }
      for (YamlNode& map : maps) {
        if (map.kind != YamlNode::Kind::kMap) {
          Report(merge.line, absl::StrCat("'<<' merges maps, this is ", KindName(map.kind)));
          continue;
        }
        for (YamlEntry& entry : map.entries) {
          if (frame->lines.emplace(entry.key, entry.line).second) frame->node.entries.push_back(std::move(entry));
        }
      }
    }
  }

  const std::vector<std::string>& lines_;
  const std::string source_;
  const YamlLimits limits_;
  std::vector<ConfigError>* errors_;
  std::map<YAML::anchor_t, Anchored> anchors_;  // completed ones: an alias to an open one is its own parent
  std::vector<Frame> frames_;
  YamlNode root_;
  size_t nodes_ = 0;
  int documents_ = 0;
  bool stopped_ = false;
};

int LineOf(const std::string& text, size_t offset) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n'));
}

// Checks that need no parser. Returns the first problem.
std::optional<ConfigError> CheckBytes(const std::string& text, const std::string& source, const YamlLimits& limits) {
  if (text.size() > limits.bytes) {
    return ConfigError{
        source, 0, "", absl::StrCat(text.size(), " bytes are more than the limit of ", limits.bytes), {}};
  }
  if (const size_t bad = FirstBadUtf8(text); bad != std::string::npos) {
    return ConfigError{source, LineOf(text, bad), "", absl::StrCat("not UTF-8 at byte ", bad), {}};
  }
  const auto is_control = [](unsigned char c) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  };
  const auto control = std::find_if(text.begin(), text.end(), is_control);
  if (control == text.end()) return std::nullopt;
  const size_t offset = static_cast<size_t>(control - text.begin());
  return ConfigError{source,
                     LineOf(text, offset),
                     "",
                     absl::StrCat("control character ", Quoted(std::string(1, *control)), " at byte ", offset),
                     {}};
}

std::string Normalised(std::string text) {
  constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";
  if (absl::StartsWith(text, kByteOrderMark)) text.erase(0, 3);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i];
  }
  return out;
}

}  // namespace

std::optional<YamlNode> ParseYaml(const std::string& text, const std::string& source, std::vector<ConfigError>* errors,
                                  const YamlLimits& limits) {
  const size_t errors_before = errors->size();
  if (auto error = CheckBytes(text, source, limits)) {
    errors->push_back(*std::move(error));
    return std::nullopt;
  }
  const std::string normalised = Normalised(text);
  const std::vector<std::string> lines = absl::StrSplit(normalised, '\n');
  TreeBuilder builder(lines, source, limits, errors);
  try {
    std::istringstream stream(normalised);
    YAML::Parser parser(stream);
    while (!builder.stopped() && parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& exception) {
    // A tab usually shows as some other syntax error further on; after our own error the rest says nothing new.
    if (!builder.stopped()) {
      const int line = exception.mark.line + 1;
      const bool tab = line >= 1 && line <= static_cast<int>(lines.size()) && HasTabInIndentation(lines[line - 1]);
      errors->push_back({source,
                         line,
                         "",
                         tab ? "a tab in the indentation (YAML indents with spaces)"
                             : absl::StrCat("not valid YAML: ", exception.msg),
                         {}});
    }
  }
  if (errors->size() > errors_before) return std::nullopt;
  return builder.TakeRoot();
}

std::string KindName(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "a single value";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
  }
  return "nothing";
}

}  // namespace sluice

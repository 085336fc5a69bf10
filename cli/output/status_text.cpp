// SPDX-License-Identifier: Apache-2.0
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/explanation.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "mdev/framework.h"
#include "policy/gpu_selection.h"

namespace ferry::cli {
namespace {

enum Column : std::size_t {
  kAddress,
  kModel,
  kGroup,
  kNuma,
  kLink,
  kDriver,
  kMode,
  kDesired,
  kResource,
  kState,
  kColumns
};
constexpr std::array<std::string_view, kColumns> kHeading = {
    "ACCELERATOR", "MODEL", "GROUP", "NUMA", "LINK", "DRIVER", "MODE", "DESIRED", "RESOURCE", "STATE"};
constexpr std::array kOnlyWide = {kNuma, kLink, kDesired, kResource};
constexpr std::size_t kGap = 2;
constexpr std::size_t kIndent = 4;     // of lines below a row
constexpr std::size_t kMostNamed = 3;  // users of one row
constexpr std::size_t kLeastModel = 10;
constexpr std::size_t kLeastDriver = 8;
constexpr std::size_t kLeastNote = 24;  // in less the terminal cuts a note off

struct Note {
  std::string text;
  Tint tint = Tint::plain;
};

struct Row {
  std::array<std::string, kColumns> cells;
  Tint tint = Tint::plain;  // of all cells but the state
  Tint state = Tint::plain;
  std::vector<Note> notes;
  std::string below;  // stands before notes below the row: the line to the group's next member
};

std::string others(std::size_t count, const vfio::PciAddress& address) {
  return fmt::format("and {} more: `ferry explain {}`", count, address.text());
}

void add_condition(const host::AcceleratorDescription& description, const host::NodeDescription& node,
                   std::vector<Note>& notes) {
  const host::Condition& condition = description.condition;
  // A line below the table says it of all accelerators.
  if (node.no_iommu && condition.reason == node.no_iommu->message) return;
  if (!condition.reason.empty())
    notes.push_back({.text = condition.reason, .tint = tint_of(condition.health)});
  if (!condition.hint.empty()) {
    notes.push_back({.text = "hint: " + condition.hint, .tint = Tint::dim});
  } else if (condition.health == host::Health::bad) {
    notes.push_back(
        {.text = fmt::format("hint: `ferry explain {}` says what would help", description.address().text()),
         .tint = Tint::dim});
  }
}

// A user that the reason already names is left out.
void add_users(const host::AcceleratorDescription& description, std::vector<Note>& notes) {
  std::vector<std::string> texts;
  for (const vfio::DeviceUser& user : description.users) {
    const bool of_a_vgpu = std::ranges::any_of(description.vgpus, [&](const host::VgpuDescription& vgpu) {
      return std::ranges::find(vgpu.users, user) != vgpu.users.end();
    });
    std::string text = user.text();
    if (!of_a_vgpu && description.condition.reason.find(text) == std::string::npos)
      texts.push_back(std::move(text));
  }
  for (std::size_t i = 0; i < std::min(texts.size(), kMostNamed); ++i) notes.push_back({.text = texts[i]});
  if (texts.size() > kMostNamed)
    notes.push_back({.text = others(texts.size() - kMostNamed, description.address())});
}

// "2 x GRID T4-4Q, 1 in use: VM half (pid 811)"
void add_vgpus(const host::AcceleratorDescription& description, std::vector<Note>& notes) {
  struct Made {
    std::size_t count = 0;
    std::size_t used = 0;
    std::vector<std::string> users;
  };
  std::map<std::string, Made> types;
  for (const host::VgpuDescription& vgpu : description.vgpus) {
    Made& made = types[vgpu.device.type_name];
    ++made.count;
    if (!vgpu.users.empty()) ++made.used;
    for (const vfio::DeviceUser& user : vgpu.users) made.users.push_back(who(user));
  }
  for (auto& [type, made] : types) {
    std::string text = fmt::format("{} x {}", made.count, type);
    if (made.used > 0) {
      const std::size_t left_out = made.users.size() > kMostNamed ? made.users.size() - kMostNamed : 0;
      made.users.resize(made.users.size() - left_out);
      text += fmt::format(", {} in use: {}", made.used, fmt::join(made.users, ", "));
      if (left_out > 0) text += " " + others(left_out, description.address());
    }
    notes.push_back({.text = std::move(text)});
  }
  if (types.empty() && description.framework->makes_vgpus())
    notes.push_back(
        {.text = fmt::format("no vGPU made ({})", description.framework->name()), .tint = Tint::dim});
}

std::string driver_text(const vfio::PciFunction& function) {
  return function.driver.value_or("none");
}

// "16.0 GT/s x16", without what it could be.
std::string link_of(const host::AcceleratorDescription& description) {
  if (!description.facts) return {};
  const std::string line = link_line(description.facts->link).text;
  return line.substr(0, line.find_first_of(",:("));
}

std::string resources_of(const host::AcceleratorDescription& description) {
  std::set<std::string> names;
  for (const api::AdvertisedDevice& one : description.advertised_as) names.insert(one.resource);
  for (const host::VgpuDescription& vgpu : description.vgpus)
    for (const api::AdvertisedDevice& one : vgpu.advertised_as) names.insert(one.resource);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The desired mode; "dra" for a GPU of DRA, whose claims decide.
std::string desired_text(const host::AcceleratorDescription& description) {
  if (!description.status) return "-";
  if (description.status->desired) return std::string(text(*description.status->desired));
  return description.status->allocation == api::Allocation::dra ? "dra" : "-";
}

Row row_of(const host::AcceleratorDescription& description, const host::NodeDescription& node,
           bool heads_group) {
  Row row;
  const auto& group = description.function.iommu_group;
  row.cells[kAddress] = description.address().text();
  row.cells[kModel] = description.model;
  row.cells[kGroup] = heads_group ? (group ? std::to_string(*group) : "none") : "";
  row.cells[kNuma] = description.function.numa_node ? std::to_string(*description.function.numa_node) : "-";
  row.cells[kLink] = link_of(description);
  row.cells[kDriver] = driver_text(description.function);
  row.cells[kMode] = std::string(text(description.mode));
  row.cells[kDesired] = desired_text(description);
  row.cells[kResource] = resources_of(description);
  row.cells[kState] = description.condition.word;
  row.state = tint_of(description.condition.health);
  add_condition(description, node, row.notes);
  if (auto other = vfio::override_of_another_driver(description.function))
    row.notes.push_back({.text = std::move(*other), .tint = Tint::dim});
  add_users(description, row.notes);
  add_vgpus(description, row.notes);
  return row;
}

Row row_of(const host::MemberDescription& member) {
  Row row;
  row.cells[kAddress] = member.function.address.text();
  row.cells[kModel] = member.what;
  row.cells[kDriver] = driver_text(member.function);
  row.tint = Tint::dim;
  return row;
}

/// The rows in the order of the output, with those of a group together.
std::vector<Row> rows_of(const host::NodeDescription& description, const TextOutput& output) {
  const std::string more = output.unicode ? "├─ " : "|- ";
  const std::string last = output.unicode ? "└─ " : "`- ";
  const std::string down = output.unicode ? "│" : "|";
  std::vector<Row> rows;
  std::set<vfio::PciAddress> drawn;
  for (const host::AcceleratorDescription& head : description.accelerators) {
    if (!drawn.insert(head.address()).second) continue;
    rows.push_back(row_of(head, description, true));
    if (!head.members.empty()) rows.back().below = down;
    for (std::size_t i = 0; i < head.members.size(); ++i) {
      const host::MemberDescription& member = head.members[i];
      const bool ends = i + 1 == head.members.size();
      const host::AcceleratorDescription* known = description.find(member.function.address);
      rows.push_back(known == nullptr ? row_of(member) : row_of(*known, description, false));
      rows.back().cells[kAddress].insert(0, ends ? last : more);
      if (!ends) rows.back().below = down;
      drawn.insert(member.function.address);
    }
  }
  return rows;
}

class Drawing {
 public:
  Drawing(std::vector<Row> rows, const TextOutput& output, bool wide)
      : rows_(std::move(rows)), output_(output) {
    for (const Column column : kOnlyWide) hidden_[column] = !wide;
    measure();
    if (output_.columns && total() > *output_.columns) {
      for (Row& row : rows_) row.cells[kModel] = policy::short_model(row.cells[kModel]);
      measure();
      shrink(kModel, kLeastModel);
      shrink(kDriver, kLeastDriver);
    }
  }

  std::string text() const {
    std::string out;
    std::string line;
    for (std::size_t c = 0; c < kColumns; ++c)
      line += c + 1 == kColumns ? std::string(kHeading[c]) : cell(std::string(kHeading[c]), c);
    out += tinted(output_, Tint::heading, line) + "\n";
    for (const Row& row : rows_) draw(row, out);
    return out;
  }

 private:
  void measure() {
    for (std::size_t c = 0; c < kColumns; ++c) {
      if (hidden_[c]) continue;
      widths_[c] = width_of(kHeading[c]);
      for (const Row& row : rows_) widths_[c] = std::max(widths_[c], width_of(row.cells[c]));
    }
  }
  std::size_t total() const {
    const auto hidden = static_cast<std::size_t>(std::ranges::count(hidden_, true));
    std::size_t sum = kGap * (kColumns - hidden - 1);
    for (const std::size_t width : widths_) sum += width;
    return sum;
  }
  void shrink(Column column, std::size_t least) {
    if (total() <= *output_.columns) return;
    const std::size_t over = total() - *output_.columns;
    std::size_t& width = widths_[column];
    width = width > least + over ? width - over : std::min(width, least);
  }
  std::string cell(const std::string& text, std::size_t column) const {
    if (hidden_[column]) return {};
    return padded(cut_to(output_, text, widths_[column]), widths_[column] + kGap);
  }

  void draw(const Row& row, std::string& out) const {
    std::string start;
    for (std::size_t c = 0; c < kState; ++c) start += cell(row.cells[c], c);
    const std::string& state = row.cells[kState];
    if (state.empty()) start.erase(start.find_last_not_of(' ') + 1);
    std::string line = tinted(output_, row.tint, start) + tinted(output_, row.state, state);
    std::size_t first = 0;
    if (!row.notes.empty() && !state.empty()) {
      const Note& beside = row.notes.front();
      const std::size_t at = width_of(start) + std::max(width_of(state), widths_[kState]) + kGap;
      if (!output_.columns || at + width_of(beside.text) <= *output_.columns) {
        line += std::string(at - width_of(start) - width_of(state), ' ') +
                tinted(output_, beside.tint, beside.text);
        first = 1;
      }
    }
    out += line + "\n";
    for (std::size_t i = first; i < row.notes.size(); ++i) draw(row.notes[i], row.below, out);
  }

  void draw(const Note& note, const std::string& below, std::string& out) const {
    for (const std::string& line : wrapped(note.text, width_behind(output_, kIndent, kLeastNote)))
      out += tinted(output_, Tint::dim, below) + std::string(kIndent - width_of(below), ' ') +
             tinted(output_, note.tint, line) + "\n";
  }

  std::vector<Row> rows_;
  const TextOutput& output_;
  std::array<std::size_t, kColumns> widths_{};
  std::array<bool, kColumns> hidden_{};
};

Tint tint_of(api::NodePhase phase) {
  if (phase == api::NodePhase::blocked || phase == api::NodePhase::failed) return Tint::bad;
  return phase == api::NodePhase::applying ? Tint::attention : Tint::plain;
}

/// A line for each function that counts only if it is named.
std::string by_name_lines(const host::NodeDescription& description, const TextOutput& output) {
  if (description.by_name.empty()) return {};
  const auto in_lines = [&](const std::string& text) {
    return wrapped_lines(visible_line(text), output.columns);
  };
  std::string out =
      in_lines(fmt::format("counted only where they are named, as in `ferry vfio bind --device {}`:",
                           description.by_name.front().function.address.text()));
  for (const auto& [function, model, advertised_as, not_advertised] : description.by_name) {
    std::string line =
        fmt::format("{}  {} {}, {}, {}", function.address.text(), vfio::kind_of(function),
                    model.empty() ? function.ids() : model,
                    function.iommu_group ? fmt::format("group {}", *function.iommu_group) : "no group",
                    function.driver ? "driver " + *function.driver : "no driver");
    for (const api::AdvertisedDevice& advertised : advertised_as)
      line += fmt::format(", advertised as {}{}", advertised.resource,
                          advertised.healthy ? "" : ", unhealthy: " + advertised.reason);
    if (!not_advertised.empty()) line += ", not advertised: " + not_advertised;
    out += in_lines(line);
  }
  return out;
}

// "3 minutes"; empty: less than a minute, or not known.
std::string age_text(const std::optional<std::chrono::seconds>& age) {
  using std::chrono::duration_cast;
  if (!age || *age < std::chrono::minutes{1}) return {};
  if (*age < std::chrono::hours{1})
    return counted(static_cast<std::size_t>(duration_cast<std::chrono::minutes>(*age).count()), "minute");
  const auto hours = static_cast<std::size_t>(duration_cast<std::chrono::hours>(*age).count());
  constexpr std::size_t kHoursOfDay = 24;
  return hours < 2 * kHoursOfDay ? counted(hours, "hour") : counted(hours / kHoursOfDay, "day");
}

/// A failure that no hostd retries, with its age; empty: hostd runs, or there is no failure.
std::string stale_failure(const host::NodeDescription& description) {
  const bool fault =
      description.phase == api::NodePhase::failed || description.phase == api::NodePhase::blocked;
  if (!fault || description.hostd_runs) return {};
  const std::string age = age_text(description.status_age);
  return fmt::format("{}ferry hostd does not run, so nothing has looked again; `ferry hostd --once` does",
                     age.empty() ? "" : fmt::format("that was {} ago: ", age));
}

// "policy mixed (label gpu-ferry.io/policy=mixed): ready"
std::string policy_lines(const host::NodeDescription& description, const TextOutput& output) {
  if (!description.phase || (!description.desired && !description.error)) return {};
  const std::string phase(text(*description.phase));
  std::string head = "policy";
  if (description.desired) head += " " + description.desired->policy;
  if (description.desired && !description.desired->source.empty())
    head += fmt::format(" ({})", description.desired->source);
  head = visible_line(head + ": ");
  const std::string rest =
      description.error ? visible_line(", " + description.error->message) : std::string();
  std::string out = wrapped_lines(head + phase + rest, output.columns);
  // Line breaks replace blanks, so the phase keeps its place, unless a word before it was broken: then it has
  // no colour.
  if (out.compare(head.size(), phase.size(), phase) == 0)
    out.replace(head.size(), phase.size(), tinted(output, tint_of(*description.phase), phase));
  if (description.error && !description.error->hint.empty())
    out += wrapped_lines(visible_line("hint: " + description.error->hint), output.columns);
  if (const std::string stale = stale_failure(description); !stale.empty())
    out += wrapped_lines(stale, output.columns);
  return out;
}

}  // namespace

Tint tint_of(host::Health health) {
  if (health == host::Health::good) return Tint::good;
  return health == host::Health::attention ? Tint::attention : Tint::bad;
}

std::string who(const vfio::DeviceUser& user) {
  const std::string text = user.text();
  return text.substr(0, text.find(" holds "));
}

std::string status_text(const host::NodeDescription& description, const TextOutput& output, bool wide) {
  std::string out =
      !description.accelerators.empty() ? Drawing(rows_of(description, output), output, wide).text()
      : description.by_name.empty()     ? "no accelerators on this host\n"
                                    : fmt::format("no accelerators of {} on this host\n", description.whose);
  out += by_name_lines(description, output);
  out += policy_lines(description, output);
  const auto add = [&](const std::string& text, Tint tint = Tint::plain) {
    for (const std::string& line : wrapped(text, output.columns)) out += tinted(output, tint, line) + "\n";
  };
  if (description.no_iommu) {
    add("nothing here can be given to a VM: " + description.no_iommu->message, Tint::bad);
    add("hint: " + description.no_iommu->hint);
  }
  for (const std::string& note : description.unknown) add("note: " + note);
  for (const std::string& note : description.notes) add("note: " + note);
  return out;
}

}  // namespace ferry::cli

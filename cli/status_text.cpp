// SPDX-License-Identifier: Apache-2.0
#include "cli/status_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/counted.h"
#include "common/visible_text.h"
#include "policy/model_glob.h"

namespace ferry {
namespace {

enum Column : std::size_t { kAddress, kModel, kGroup, kDriver, kMode, kState, kColumns };
constexpr std::array<std::string_view, kColumns> kHeading = {"ACCELERATOR", "MODEL", "GROUP",
                                                             "DRIVER",      "MODE",  "STATE"};
constexpr std::size_t kGap = 2;
constexpr std::size_t kIndent = 4;     // of what stands below a row
constexpr std::size_t kMostNamed = 3;  // of one row's users
constexpr std::size_t kLeastModel = 10;
constexpr std::size_t kLeastDriver = 8;
constexpr std::size_t kLeastNote = 24;  // below that a note is better cut off by the terminal

struct Note {
  std::string text;
  Tint tint = Tint::plain;
};

struct Row {
  std::array<std::string, kColumns> cells;
  Tint tint = Tint::plain;  // of all but the state
  Tint state = Tint::plain;
  std::vector<Note> notes;
  std::string below;  // what stands before the notes below it: the line to the group's next member
};

std::string others(std::size_t count, const PciAddress& address) {
  return fmt::format("and {} more: `ferry explain {}`", count, address.text());
}

void add_condition(const AcceleratorView& view, std::vector<Note>& notes) {
  const Condition& condition = view.condition;
  if (!condition.reason.empty())
    notes.push_back({.text = condition.reason, .tint = tint_of(condition.health)});
  if (!condition.hint.empty()) {
    notes.push_back({.text = "hint: " + condition.hint, .tint = Tint::dim});
  } else if (condition.health == Health::bad) {
    notes.push_back(
        {.text = fmt::format("hint: `ferry explain {}` says what would help", view.address().text()),
         .tint = Tint::dim});
  }
}

// Whom the reason names already is not named again.
void add_holders(const AcceleratorView& view, std::vector<Note>& notes) {
  std::vector<std::string> texts;
  for (const Holder& holder : view.holders) {
    const bool of_a_vgpu = std::ranges::any_of(view.vgpus, [&](const VgpuPicture& vgpu) {
      return std::ranges::find(vgpu.holders, holder) != vgpu.holders.end();
    });
    std::string text = holder.text();
    if (!of_a_vgpu && view.condition.reason.find(text) == std::string::npos) texts.push_back(std::move(text));
  }
  for (std::size_t i = 0; i < std::min(texts.size(), kMostNamed); ++i) notes.push_back({.text = texts[i]});
  if (texts.size() > kMostNamed) notes.push_back({.text = others(texts.size() - kMostNamed, view.address())});
}

// "2 x GRID T4-4Q, 1 in use: VM half (pid 811)"
void add_vgpus(const AcceleratorView& view, std::vector<Note>& notes) {
  struct Made {
    std::size_t count = 0;
    std::size_t used = 0;
    std::vector<std::string> users;
  };
  std::map<std::string, Made> types;
  for (const VgpuPicture& vgpu : view.vgpus) {
    Made& made = types[vgpu.device.type_name];
    ++made.count;
    if (!vgpu.holders.empty()) ++made.used;
    for (const Holder& holder : vgpu.holders) made.users.push_back(who(holder));
  }
  for (auto& [type, made] : types) {
    std::string text = fmt::format("{} x {}", made.count, type);
    if (made.used > 0) {
      const std::size_t left_out = made.users.size() > kMostNamed ? made.users.size() - kMostNamed : 0;
      made.users.resize(made.users.size() - left_out);
      text += fmt::format(", {} in use: {}", made.used, fmt::join(made.users, ", "));
      if (left_out > 0) text += " " + others(left_out, view.address());
    }
    notes.push_back({.text = std::move(text)});
  }
  if (types.empty() && view.framework != VgpuFramework::none)
    notes.push_back({.text = fmt::format("no vGPU made ({})", text(view.framework)), .tint = Tint::dim});
}

std::string driver_text(const PciFunction& function) {
  return function.driver.value_or("none");
}

Tint state_tint(const AcceleratorView& view) {
  return tint_of(view.condition.health);
}

Row row_of(const AcceleratorView& view, bool heads_group) {
  Row row;
  const auto& group = view.function.iommu_group;
  row.cells = {view.address().text(),
               view.model,
               heads_group ? (group ? std::to_string(*group) : "none") : "",
               driver_text(view.function),
               std::string(text(view.mode)),
               view.condition.word};
  row.state = state_tint(view);
  add_condition(view, row.notes);
  if (auto other = override_of_another_driver(view.function))
    row.notes.push_back({.text = std::move(*other), .tint = Tint::dim});
  add_holders(view, row.notes);
  add_vgpus(view, row.notes);
  return row;
}

Row row_of(const MemberView& member) {
  Row row;
  row.cells = {member.function.address.text(), member.what, "", driver_text(member.function), "", ""};
  row.tint = Tint::dim;
  return row;
}

/// Rows in the order in which they are drawn: a group's together.
std::vector<Row> rows_of(const NodePicture& view, const Canvas& canvas) {
  const std::string more = canvas.unicode ? "├─ " : "|- ";
  const std::string last = canvas.unicode ? "└─ " : "`- ";
  const std::string down = canvas.unicode ? "│" : "|";
  std::vector<Row> rows;
  std::set<PciAddress> drawn;
  for (const AcceleratorView& head : view.accelerators) {
    if (!drawn.insert(head.address()).second) continue;
    rows.push_back(row_of(head, true));
    if (!head.members.empty()) rows.back().below = down;
    for (std::size_t i = 0; i < head.members.size(); ++i) {
      const MemberView& member = head.members[i];
      const bool ends = i + 1 == head.members.size();
      const AcceleratorView* known = view.find(member.function.address);
      rows.push_back(known == nullptr ? row_of(member) : row_of(*known, false));
      rows.back().cells[kAddress].insert(0, ends ? last : more);
      if (!ends) rows.back().below = down;
      drawn.insert(member.function.address);
    }
  }
  return rows;
}

class Drawing {
 public:
  Drawing(std::vector<Row> rows, const Canvas& canvas) : rows_(std::move(rows)), canvas_(canvas) {
    measure();
    if (canvas_.columns && total() > *canvas_.columns) {
      for (Row& row : rows_) row.cells[kModel] = short_model(row.cells[kModel]);
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
    out += tinted(canvas_, Tint::heading, line) + "\n";
    for (const Row& row : rows_) draw(row, out);
    return out;
  }

 private:
  void measure() {
    for (std::size_t c = 0; c < kColumns; ++c) {
      widths_[c] = width_of(kHeading[c]);
      for (const Row& row : rows_) widths_[c] = std::max(widths_[c], width_of(row.cells[c]));
    }
  }
  std::size_t total() const {
    std::size_t sum = kGap * (kColumns - 1);
    for (const std::size_t width : widths_) sum += width;
    return sum;
  }
  void shrink(Column column, std::size_t least) {
    if (total() <= *canvas_.columns) return;
    const std::size_t over = total() - *canvas_.columns;
    std::size_t& width = widths_[column];
    width = width > least + over ? width - over : std::min(width, least);
  }
  std::string cell(const std::string& text, std::size_t column) const {
    return padded(cut_to(canvas_, text, widths_[column]), widths_[column] + kGap);
  }

  void draw(const Row& row, std::string& out) const {
    std::string start;
    for (std::size_t c = 0; c < kState; ++c) start += cell(row.cells[c], c);
    const std::string& state = row.cells[kState];
    if (state.empty()) start.erase(start.find_last_not_of(' ') + 1);
    std::string line = tinted(canvas_, row.tint, start) + tinted(canvas_, row.state, state);
    std::size_t first = 0;
    if (!row.notes.empty() && !state.empty()) {
      const Note& beside = row.notes.front();
      const std::size_t at = width_of(start) + std::max(width_of(state), widths_[kState]) + kGap;
      if (!canvas_.columns || at + width_of(beside.text) <= *canvas_.columns) {
        line += std::string(at - width_of(start) - width_of(state), ' ') +
                tinted(canvas_, beside.tint, beside.text);
        first = 1;
      }
    }
    out += line + "\n";
    for (std::size_t i = first; i < row.notes.size(); ++i) draw(row.notes[i], row.below, out);
  }

  void draw(const Note& note, const std::string& below, std::string& out) const {
    std::vector<std::string> lines = {note.text};
    if (canvas_.columns)
      lines = wrapped(note.text, std::max(*canvas_.columns, kIndent + kLeastNote) - kIndent);
    for (const std::string& line : lines)
      out += tinted(canvas_, Tint::dim, below) + std::string(kIndent - width_of(below), ' ') +
             tinted(canvas_, note.tint, line) + "\n";
  }

  std::vector<Row> rows_;
  const Canvas& canvas_;
  std::array<std::size_t, kColumns> widths_{};
};

Tint tint_of(NodePhase phase) {
  switch (phase) {
    case NodePhase::refused:
    case NodePhase::failed:
      return Tint::bad;
    case NodePhase::withdrawing:
    case NodePhase::changing:
      return Tint::attention;
    case NodePhase::nothing_wanted:
    case NodePhase::as_wanted:
      break;
  }
  return Tint::plain;
}

std::vector<std::string> fitted(const std::string& text, const Canvas& canvas) {
  return canvas.columns ? wrapped(text, *canvas.columns) : std::vector<std::string>{text};
}

/// Functions that count only where they are named, a line each.
std::string by_name_lines(const NodePicture& view, const Canvas& canvas) {
  if (view.by_name.empty()) return {};
  const auto in_lines = [&](const std::string& text) {
    return fmt::format("{}\n", fmt::join(fitted(visible_line(text), canvas), "\n"));
  };
  std::string out =
      in_lines(fmt::format("counted only where they are named, as in `ferry vfio bind --device {}`:",
                           view.by_name.front().function.address.text()));
  for (const auto& [function, model, offers, not_offered] : view.by_name) {
    std::string line =
        fmt::format("{}  {} {}, {}, {}", function.address.text(), kind_of(function),
                    model.empty() ? function.ids() : model,
                    function.iommu_group ? fmt::format("group {}", *function.iommu_group) : "no group",
                    function.driver ? "driver " + *function.driver : "no driver");
    for (const OfferedAs& offer : offers)
      line += fmt::format(", offered as {}{}", offer.resource,
                          offer.healthy ? "" : ", unhealthy: " + offer.reason);
    if (!not_offered.empty()) line += ", not offered: " + not_offered;
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

/// A failure that hostd does not look at again, with its age; empty: it does, or there is none.
std::string stale_failure(const NodePicture& view) {
  const bool fault = view.phase == NodePhase::failed || view.phase == NodePhase::refused;
  if (!fault || view.hostd_runs) return {};
  const std::string age = age_text(view.state_age);
  return fmt::format("{}ferry hostd does not run, so nothing has looked again; `ferry hostd --once` does",
                     age.empty() ? "" : fmt::format("that was {} ago: ", age));
}

// "policy mixed (label gpu-ferry.io/policy=mixed): as wanted"
std::string policy_lines(const NodePicture& view, const Canvas& canvas) {
  if (!view.phase || (!view.wanted && !view.error)) return {};
  std::string phase(text(*view.phase));
  std::ranges::replace(phase, '_', ' ');
  std::string head = "policy";
  if (view.wanted) head += " " + view.wanted->policy;
  if (view.wanted && !view.wanted->asked_by.empty()) head += fmt::format(" ({})", view.wanted->asked_by);
  head = visible_line(head + ": ");
  const std::string rest = view.error ? visible_line(", " + view.error->message) : std::string();
  std::string out = fmt::format("{}\n", fmt::join(fitted(head + phase + rest, canvas), "\n"));
  // It is where it was, since line breaks have taken the places of blanks, but where a word was broken before
  // it: then it has no colour. One that has a colour is a single word.
  if (out.compare(head.size(), phase.size(), phase) == 0)
    out.replace(head.size(), phase.size(), tinted(canvas, tint_of(*view.phase), phase));
  if (view.error && !view.error->hint.empty())
    out += fmt::format("{}\n", fmt::join(fitted(visible_line("hint: " + view.error->hint), canvas), "\n"));
  if (const std::string stale = stale_failure(view); !stale.empty())
    out += fmt::format("{}\n", fmt::join(fitted(stale, canvas), "\n"));
  return out;
}

}  // namespace

Tint tint_of(Health health) {
  switch (health) {
    case Health::good:
      return Tint::good;
    case Health::attention:
      return Tint::attention;
    case Health::bad:
      return Tint::bad;
  }
  return Tint::plain;
}

std::string who(const Holder& holder) {
  const std::string text = holder.text();
  return text.substr(0, text.find(" holds "));
}

std::string status_text(const NodePicture& view, const Canvas& canvas) {
  std::string out = !view.accelerators.empty() ? Drawing(rows_of(view, canvas), canvas).text()
                    : view.by_name.empty()     ? "no accelerators on this host\n"
                                           : fmt::format("no accelerators of {} on this host\n", view.whose);
  out += by_name_lines(view, canvas);
  out += policy_lines(view, canvas);
  const auto add = [&](const std::string& text, Tint tint = Tint::plain) {
    for (const std::string& line : fitted(text, canvas)) out += tinted(canvas, tint, line) + "\n";
  };
  if (view.no_iommu) {
    add("nothing here can be given to a VM: " + view.no_iommu->message, Tint::bad);
    add("hint: " + view.no_iommu->hint);
  }
  for (const std::string& note : view.unknown) add("note: " + note);
  for (const std::string& note : view.notes) add("note: " + note);
  return out;
}

}  // namespace ferry

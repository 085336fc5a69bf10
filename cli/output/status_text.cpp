// SPDX-License-Identifier: Apache-2.0
#include "cli/output/status_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/explanation.h"
#include "cli/output/explanation_parts.h"
#include "cli/output/table.h"
#include "common/text/text.h"
#include "mdev/framework.h"
#include "policy/gpu_selection.h"

namespace ferry::cli {
namespace {

constexpr std::size_t kMostNamed = 3;  // users of one row

std::string others(std::size_t count, const vfio::PciAddress& address) {
  return fmt::format("and {} more: `ferry explain {}`", count, address.text());
}

void add_condition(const host::AcceleratorDescription& description, const host::NodeDescription& node,
                   Table& table) {
  const host::Condition& condition = description.condition;
  // A line below the table says it of all accelerators.
  if (node.no_iommu && condition.reason == node.no_iommu->message) return;
  if (!condition.reason.empty()) table.note(condition.reason, tint_of(condition.health));
  if (!condition.hint.empty()) table.note("hint: " + condition.hint, Tint::dim);
}

// A user that the reason already names is left out.
void add_users(const host::AcceleratorDescription& description, Table& table) {
  std::vector<std::string> texts;
  for (const vfio::DeviceUser& user : description.users) {
    const bool of_a_vgpu = std::ranges::any_of(description.vgpus, [&](const host::VgpuDescription& vgpu) {
      return std::ranges::find(vgpu.users, user) != vgpu.users.end();
    });
    std::string text = user.text();
    if (!of_a_vgpu && description.condition.reason.find(text) == std::string::npos)
      texts.push_back(std::move(text));
  }
  for (std::size_t i = 0; i < std::min(texts.size(), kMostNamed); ++i) table.note(texts[i]);
  if (texts.size() > kMostNamed) table.note(others(texts.size() - kMostNamed, description.address()));
}

// "2 x GRID T4-4Q, 1 in use: VM half (pid 811)"
void add_vgpus(const host::AcceleratorDescription& description, Table& table) {
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
    table.note(std::move(text));
  }
  if (types.empty() && description.framework->makes_vgpus() && description.vgpu_problem.empty())
    table.note(fmt::format("no vGPU made ({})", description.framework->name()), Tint::dim);
}

/// The accelerators, those of a group together.
class AcceleratorTable {
 public:
  AcceleratorTable(const host::NodeDescription& node, bool wide, bool short_models)
      : node_(node),
        wide_(wide),
        short_models_(short_models),
        table_(shown({"ACCELERATOR", "MODEL", "GROUP", "NUMA", "LINK", "DRIVER", "MODE", "DESIRED",
                      "RESOURCE", "STATE"})) {
    std::set<vfio::PciAddress> listed;
    for (const host::AcceleratorDescription& head : node.accelerators) {
      if (!listed.insert(head.address()).second) continue;
      const auto& group = head.function.iommu_group;
      add(head, "", group ? std::to_string(*group) : "none");
      for (const host::MemberDescription& member : head.members) {
        const std::string branch = &member == &head.members.back() ? "`- " : "|- ";
        const host::AcceleratorDescription* known = node.find(member.function.address);
        if (known == nullptr)
          add(member, branch);
        else
          add(*known, branch, " ");
        listed.insert(member.function.address);
      }
    }
  }
  const Table& table() const { return table_; }

 private:
  std::vector<std::string> shown(std::vector<std::string> row) const {
    constexpr std::array<std::ptrdiff_t, 4> kOnlyWide = {8, 7, 4, 3};
    if (!wide_)
      for (const std::ptrdiff_t column : kOnlyWide) row.erase(row.begin() + column);
    return row;
  }
  void add(const host::AcceleratorDescription& gpu, const std::string& branch, const std::string& group) {
    // "16.0 GT/s x16", without what it could be.
    std::string link = gpu.facts ? link_line(gpu.facts->link).text : "";
    link = link.substr(0, link.find_first_of(",:("));
    std::string desired;
    if (gpu.status && gpu.status->desired)
      desired = text(*gpu.status->desired);
    else if (gpu.status && gpu.status->allocation == api::Allocation::dra)
      desired = "dra";  // its claims decide
    std::set<std::string> resources;
    for (const api::AdvertisedDevice& one : gpu.advertised_as) resources.insert(one.resource);
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      for (const api::AdvertisedDevice& one : vgpu.advertised_as) resources.insert(one.resource);

    const auto& numa = gpu.function.numa_node;
    const auto row =
        shown({branch + gpu.address().text(), short_models_ ? policy::short_model(gpu.model) : gpu.model,
               group, numa ? std::to_string(*numa) : "", link, gpu.function.driver.value_or("none"),
               std::string(text(gpu.mode)), desired, fmt::format("{}", fmt::join(resources, ", ")),
               gpu.condition.word});
    table_.add(row);
    table_.tint(row.size() - 1, tint_of(gpu.condition.health));

    add_condition(gpu, node_, table_);
    if (auto other = vfio::override_of_another_driver(gpu.function))
      table_.note(std::move(*other), Tint::dim);
    if (gpu.status && gpu.status->registers) {
      auto [note, tint] = registers_note(*gpu.status->registers);
      table_.note("registers: " + note, tint);
    }
    add_users(gpu, table_);
    add_vgpus(gpu, table_);
  }
  void add(const host::MemberDescription& member, const std::string& branch) {
    table_.add(shown({branch + member.function.address.text(), member.what, " ", " ", " ",
                      member.function.driver.value_or("none"), " ", " ", " ", " "}),
               Tint::dim);
  }

  const host::NodeDescription& node_;
  const bool wide_;
  const bool short_models_;
  Table table_;
};

Tint tint_of(api::NodePhase phase) {
  if (phase == api::NodePhase::blocked || phase == api::NodePhase::failed) return Tint::bad;
  return phase == api::NodePhase::applying ? Tint::attention : Tint::plain;
}

/// A line for each function that counts only if it is named.
std::string by_name_lines(const host::NodeDescription& description, const TextOutput& output) {
  if (description.by_name.empty()) return {};
  std::string out =
      tinted_lines(output, Tint::plain,
                   fmt::format("counted only where they are named, as in `ferry vfio bind --device {}`:",
                               description.by_name.front().function.address.text()));
  for (const host::NamedDescription& named : description.by_name) {
    const auto& [function, model, advertised_as, not_advertised, findings] = named;
    std::string line =
        fmt::format("{}  {} {}, {}, {}", function.address.text(), vfio::kind_of(function),
                    model.empty() ? function.ids() : model,
                    function.iommu_group ? fmt::format("group {}", *function.iommu_group) : "no group",
                    driver_text(function.driver));
    for (const api::AdvertisedDevice& advertised : advertised_as)
      line += fmt::format(", advertised as {}{}", advertised.resource,
                          advertised.healthy ? "" : ", unhealthy: " + advertised.reason);
    if (!not_advertised.empty()) line += ", not advertised: " + not_advertised;
    const vfio::Finding* trouble = named.trouble();
    // A line below says it of all devices.
    if (trouble != nullptr && description.no_iommu && trouble->text == description.no_iommu->message)
      trouble = nullptr;
    if (trouble != nullptr && line.find(trouble->text) == std::string::npos)
      line += fmt::format(", {}: {}", vfio::rule(trouble->rule).word, trouble->text);
    out += tinted_lines(output, trouble == nullptr ? Tint::plain : Tint::bad, line);
    if (trouble != nullptr && !trouble->advice.empty())
      out += tinted_lines(output, Tint::dim, "hint: " + trouble->advice);
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

// "policy mixed (label gpu-ferry.io/policy=mixed): ready"
std::string policy_lines(const host::NodeDescription& description, const TextOutput& output) {
  if (!description.phase || (!description.desired && !description.error)) return {};
  std::string line = "policy";
  if (description.desired) line += " " + description.desired->policy;
  if (description.desired && !description.desired->source.empty())
    line += fmt::format(" ({})", description.desired->source);
  line += fmt::format(": {}", text(*description.phase));
  if (description.error) line += ", " + description.error->message;
  std::string out = tinted_lines(output, tint_of(*description.phase), line);
  if (description.error && !description.error->hint.empty())
    out += tinted_lines(output, Tint::plain, "hint: " + description.error->hint);

  const bool fault =
      description.phase == api::NodePhase::failed || description.phase == api::NodePhase::blocked;
  if (!fault || description.hostd_runs) return out;
  const std::string age = age_text(description.status_age);
  return out +
         tinted_lines(output, Tint::plain,
                      fmt::format("{}ferry hostd does not run, so nothing has looked again; `ferry hostd "
                                  "--once` does",
                                  age.empty() ? "" : fmt::format("that was {} ago: ", age)));
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
  std::string out;
  if (!description.accelerators.empty()) {
    const Table table = AcceleratorTable(description, wide, false).table();
    const bool fits = !output.columns || table.width() <= *output.columns;
    out = (fits ? table : AcceleratorTable(description, wide, true).table()).text(output);
  } else {
    out = description.by_name.empty()
              ? "no accelerators on this host\n"
              : fmt::format("no accelerators of {} on this host\n", description.whose);
  }
  out += by_name_lines(description, output);
  out += policy_lines(description, output);
  if (description.no_iommu) {
    out += tinted_lines(output, Tint::bad,
                        "nothing here can be given to a VM: " + description.no_iommu->message);
    out += tinted_lines(output, Tint::plain, "hint: " + description.no_iommu->hint);
  }
  for (const auto* notes : {&description.unknown, &description.notes})
    for (const std::string& note : *notes) out += tinted_lines(output, Tint::plain, "note: " + note);
  return out;
}

}  // namespace ferry::cli

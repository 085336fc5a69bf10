// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/types/type_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>
#include <utility>

#include <fmt/format.h>

namespace ferry::vgpu {
namespace {

constexpr std::size_t kLongest = 64;  // longer than any label value; std::regex needs a bound

constexpr std::array<std::pair<MigAttribute, std::string_view>, 5> kAttributes = {{
    {MigAttribute::none, ""},
    {MigAttribute::me, "ME"},
    {MigAttribute::nome, "NOME"},
    {MigAttribute::meall, "MEALL"},
    {MigAttribute::gfx, "GFX"},
}};

std::string_view text_of(MigAttribute attribute) {
  const auto* found = std::find_if(kAttributes.begin(), kAttributes.end(),
                                   [&](const auto& entry) { return entry.first == attribute; });
  return found == kAttributes.end() ? std::string_view() : found->second;
}

MigAttribute attribute_of(std::string_view text) {
  const auto* found = std::find_if(kAttributes.begin(), kAttributes.end(),
                                   [&](const auto& entry) { return entry.second == text; });
  return found == kAttributes.end() ? MigAttribute::none : found->first;
}

std::string compose(const VgpuTypeName& name, MigAttribute attribute) {
  const std::string slices = name.slices ? fmt::format("-{}", *name.slices) : "";
  return fmt::format("{}{}-{}{}{}", name.board, slices, name.size_gib, name.series, text_of(attribute));
}

Result<const mdev::VgpuType*> find_by_short_name(std::string_view name,
                                                 std::span<const mdev::VgpuType> offered) {
  const mdev::VgpuType* found = nullptr;
  for (const mdev::VgpuType& type : offered) {
    if (type.short_name != name) continue;
    if (found != nullptr) {
      return fail(Errc::unsupported, fmt::format("{} may be {} ({}) or {} ({})", name, found->name, found->id,
                                                 type.name, type.id));
    }
    found = &type;
  }
  return found;
}

}  // namespace

Result<VgpuTypeName> VgpuTypeName::parse(std::string_view text) {
  // No text matches both, so their order affects only speed.
  static const std::regex kTimeSliced("([A-Z0-9]+(?:-[A-Za-z]+)*)-(0|[1-9][0-9]*)([ABCQ])");
  static const std::regex kMigBacked("([A-Z0-9]+)-([1-9])-(0|[1-9][0-9]*)([ABCQ])(ME|NOME|MEALL|GFX)?");

  const auto refuse = [&]() -> tl::unexpected<Error> {
    // The text may be the driver's own name, as `nvidia-smi vgpu` prints it.
    if (const auto blank = text.find_last_of(' '); blank != std::string_view::npos) {
      if (const auto short_name = parse(text.substr(blank + 1))) {
        return fail(Errc::invalid_config, fmt::format("'{}' is not the name of a vGPU type", text),
                    fmt::format("write {}: a file names a type by the last word of the driver's name",
                                short_name->text()));
      }
    }
    return fail(
        Errc::invalid_config, fmt::format("'{}' is not the name of a vGPU type", text),
        "names look like L40S-12Q, RTX6000-Ada-24Q or H100-1-10CME: board, size in GiB, one of A B C Q");
  };
  if (text.size() > kLongest) return refuse();
  std::match_results<std::string_view::const_iterator> match;
  VgpuTypeName name;
  int size_part = 2;
  if (std::regex_match(text.begin(), text.end(), match, kMigBacked)) {
    name.slices = static_cast<std::uint32_t>(*match[2].first - '0');
    name.attribute = attribute_of(match[5].str());
    size_part = 3;
  } else if (!std::regex_match(text.begin(), text.end(), match, kTimeSliced)) {
    return refuse();
  }
  name.board = match[1].str();
  const std::string size = match[static_cast<std::size_t>(size_part)].str();
  if (std::from_chars(size.data(), size.data() + size.size(), name.size_gib).ec != std::errc())
    return refuse();
  name.series = *match[static_cast<std::size_t>(size_part) + 1].first;
  return name;
}

std::string VgpuTypeName::text() const {
  return compose(*this, attribute);
}

std::string VgpuTypeName::driver_short_name() const {
  return compose(*this, attribute == MigAttribute::me ? MigAttribute::me : MigAttribute::none);
}

Result<const mdev::VgpuType*> find_type(const VgpuTypeName& name, std::span<const mdev::VgpuType> offered) {
  auto found = find_by_short_name(name.text(), offered);
  if (!found || *found != nullptr || name.driver_short_name() == name.text()) return found;
  return find_by_short_name(name.driver_short_name(), offered);
}

}  // namespace ferry::vgpu

// SPDX-License-Identifier: Apache-2.0
#include "vgpu-dm/plan/choose.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vgpu-dm/plan/plan_parts.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::vgpu {
namespace {

constexpr std::uint64_t kMebibyte = 1ULL << 20U;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array kUnits = {
    Unit{"MiB", 1ULL << 20U}, Unit{"GiB", 1ULL << 30U},  Unit{"TiB", 1ULL << 40U},
    Unit{"Mi", 1ULL << 20U},  Unit{"Gi", 1ULL << 30U},   Unit{"Ti", 1ULL << 40U},
    Unit{"MB", 1'000'000},    Unit{"GB", 1'000'000'000}, Unit{"TB", 1'000'000'000'000},
    Unit{"M", 1'000'000},     Unit{"G", 1'000'000'000},  Unit{"T", 1'000'000'000'000},
};

}  // namespace

Result<std::uint32_t> parse_memory_mib(std::string_view text) {
  const auto refuse = [&](const std::string& why) {
    return fail(
        Errc::usage, fmt::format("'{}' is not an amount of memory: {}", text, why),
        "write a whole number and its unit: 6GiB or 6Gi, 4096MiB, or 6G, which means 6,000,000,000 bytes");
  };
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit_name = text.substr(digits);
  if (digits == 0) return refuse("it begins with no digit");
  if (unit_name.empty()) return refuse("it has no unit");
  const auto* const unit =
      std::ranges::find_if(kUnits, [&](const Unit& known) { return known.name == unit_name; });
  if (unit == kUnits.end()) {
    std::vector<std::string> names;
    names.reserve(kUnits.size());
    for (const Unit& known : kUnits) names.emplace_back(known.name);
    // To a unit of one letter every other letter would be close.
    const std::string meant = unit_name.size() == 1 ? std::string() : did_you_mean(unit_name, names);
    return refuse(fmt::format("'{}' is no unit{}", unit_name, meant));
  }

  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + digits, number);
  const std::uint64_t most = std::uint64_t{std::numeric_limits<std::uint32_t>::max()} * kMebibyte;
  if (parsed.ec != std::errc() || number > most / unit->bytes) return refuse("no GPU has that much");
  if (number == 0) return refuse("it is none");
  return static_cast<std::uint32_t>((number * unit->bytes + kMebibyte - 1) / kMebibyte);
}

namespace {

char series_of(const mdev::VgpuType& type) {
  const auto name = VgpuTypeName::of_driver(type.short_name);
  return name ? name->series : '\0';
}

std::tuple<std::uint32_t, std::size_t, std::string> rank(const mdev::VgpuType& fit) {
  return {fit.framebuffer_mib.value_or(0), std::string_view("QCBA").find(series_of(fit)), fit.short_name};
}

std::string described(const mdev::VgpuType& fit) {
  return fmt::format("{} ({} MiB)", fit.short_name, fit.framebuffer_mib.value_or(0));
}

std::string of_series(const TypeRequest& desired_state) {
  return desired_state.series ? fmt::format(" of series {}", *desired_state.series) : "";
}

/// The types of a GPU, as a request sees them. `available` counts over all parents.
struct Offer {
  std::vector<mdev::VgpuType> types = {};  ///< all that the driver lists, and those that vGPUs keep unlisted
  std::vector<mdev::VgpuType> all = {};    ///< of the series, that a profile can name; the largest is last
  std::vector<mdev::VgpuType> fitting = {};  ///< those with enough memory
  /// The smallest type with enough memory that no profile can name.
  std::optional<mdev::VgpuType> unnamed = {};
};

Offer offer_of(const mdev::VgpuGpu& gpu, const TypeRequest& desired_state) {
  Offer out{.types = types_of(gpu)};
  // Present vGPUs may keep other types unlisted: such types would fit, though none can be made now.
  if (!gpu.devices.empty()) out.types.insert(out.types.end(), gpu.unlisted.begin(), gpu.unlisted.end());
  for (const mdev::VgpuType& type : out.types) {
    const auto name = VgpuTypeName::parse(type.short_name);
    // Nothing tells the memory of a whole function.
    if ((name && name->is_whole_function()) || !type.framebuffer_mib) continue;
    if (desired_state.series && series_of(type) != *desired_state.series) continue;
    const auto found = name ? find_type(*name, out.types) : Result<const mdev::VgpuType*>(nullptr);
    if (found && *found == &type) {
      out.all.push_back(type);
    } else if (type.framebuffer_mib >= desired_state.framebuffer_mib &&
               (!out.unnamed || rank(type) < rank(*out.unnamed))) {
      out.unnamed = type;  // two types may share a name, which chooses neither
    }
  }
  std::ranges::sort(out.all, {}, rank);
  out.fitting = out.all;
  std::erase_if(out.fitting, [&](const mdev::VgpuType& type) {
    return type.framebuffer_mib < desired_state.framebuffer_mib;
  });
  return out;
}

constexpr const char* kFullHint = "remove its vGPUs, or take another GPU";

/// A type fits, and the present vGPUs leave no room for it.
Error no_room(const mdev::VgpuGpu& gpu, const Offer& offer) {
  bool full = true;
  const mdev::VgpuType* largest = nullptr;  // that can still be made
  for (const mdev::VgpuType& type : offer.types) {
    if (type.available == 0) continue;
    full = false;
    const bool has_name = type.framebuffer_mib && VgpuTypeName::parse(type.short_name);
    if (has_name && (largest == nullptr || rank(*largest) < rank(type))) largest = &type;
  }
  return {.code = Errc::refused,
          .message = fmt::format("{}: {} would do, but {} {}", gpu.label(), described(offer.fitting.front()),
                                 full ? "the GPU is full: it carries" : "none fits together with",
                                 text(counts_of(gpu))),
          .hint = largest == nullptr
                      ? kFullHint
                      : fmt::format("{} can still be made: ask for that size, or remove the GPU's vGPUs",
                                    described(*largest))};
}

Error no_fit(const mdev::VgpuGpu& gpu, const Offer& offer, const TypeRequest& desired_state) {
  const std::vector<mdev::VgpuType>& all = offer.all;
  if (!offer.fitting.empty() && gpu.devices.empty()) {
    return {
        .code = Errc::unsupported,
        .message = fmt::format("{}: {} would do, but its driver makes none now, though it carries nothing",
                               gpu.label(), described(offer.fitting.front())),
        .hint = "types that need a GPU instance are made in MIG mode only, the others only without it"};
  }
  if (!offer.fitting.empty()) return no_room(gpu, offer);
  if (offer.types.empty() && !gpu.devices.empty()) {
    return {.code = Errc::refused,
            .message = fmt::format("{}: the GPU is full: it carries {}, and its driver lists no types now",
                                   gpu.label(), text(counts_of(gpu))),
            .hint = kFullHint};
  }
  if (offer.unnamed) {
    return {.code = Errc::unsupported,
            .message = fmt::format("{}: {} would do, but no file can name it{}", gpu.label(),
                                   described(*offer.unnamed),
                                   all.empty() ? "" : "; the largest other one is " + described(all.back())),
            .hint = all.empty() ? "give the GPU away whole: `ferry vfio bind`"
                                : "ask for less, or give the GPU away whole: `ferry vfio bind`"};
  }
  if (all.empty()) {
    return {.code = Errc::unsupported,
            .message = fmt::format("{}: offers no vGPU type{}{}", gpu.label(), of_series(desired_state),
                                   offer.types.empty() ? "" : " that a file can name"),
            .hint = "`ferry vgpu types` shows what each GPU offers"};
  }
  return {
      .code = Errc::unsupported,
      .message = fmt::format("{}: no vGPU type{} has {} MiB; the largest is {}", gpu.label(),
                             of_series(desired_state), desired_state.framebuffer_mib, described(all.back())),
      .hint = "ask for less, or give the GPU away whole: `ferry vfio bind`"};
}

GpuChoice choose_on(const mdev::VgpuGpu& gpu, const TypeRequest& desired_state) {
  GpuChoice out{.index = gpu.index, .gpu = gpu.address(), .fit = {}, .reason = {}, .largest = {}};
  if (!gpu.obstacle.empty()) {
    out.reason = Error{.code = Errc::unsupported,
                       .message = fmt::format("{}: {}", gpu.label(), gpu.obstacle),
                       .hint = "`ferry vgpu types` shows what each GPU offers"};
    return out;
  }
  const Offer offer = offer_of(gpu, desired_state);
  if (!offer.all.empty()) out.largest = offer.all.back();
  if (offer.fitting.empty() && offer.unnamed) out.largest = offer.unnamed;
  const auto first =
      std::ranges::find_if(offer.fitting, [](const mdev::VgpuType& c) { return c.available > 0; });
  if (first != offer.fitting.end()) {
    out.fit = *first;
  } else {
    out.reason = no_fit(gpu, offer, desired_state);
  }
  return out;
}

Error nowhere(const std::vector<GpuChoice>& gpus, const TypeRequest& desired_state) {
  const std::string what =
      fmt::format("vGPU type{} with {} MiB or more", of_series(desired_state), desired_state.framebuffer_mib);
  // A type that only present vGPUs prevent is a better reason than the largest type there is.
  const auto taken = [](const GpuChoice& gpu) { return gpu.reason && gpu.reason->code == Errc::refused; };
  const auto fits = [&](const GpuChoice& gpu) {
    return gpu.largest && gpu.largest->framebuffer_mib >= desired_state.framebuffer_mib;
  };
  auto found = std::ranges::find_if(gpus, taken);
  if (found == gpus.end()) found = std::ranges::find_if(gpus, fits);
  if (found != gpus.end() && found->reason) return *found->reason;
  std::optional<mdev::VgpuType> most;
  std::string hint;
  for (const GpuChoice& gpu : gpus) {
    if (!gpu.largest || (most && rank(*most) >= rank(*gpu.largest))) continue;
    most = gpu.largest;
    hint = gpu.reason ? gpu.reason->hint : "";
  }
  if (most) {
    return {.code = Errc::unsupported,
            .message = fmt::format("no GPU asked has a {}; the largest is {}", what, described(*most)),
            .hint = hint};
  }
  return {.code = Errc::unsupported,
          .message = fmt::format("no GPU asked offers a {}", what),
          .hint = "`ferry vgpu types` shows what each GPU offers, or why it offers nothing"};
}

}  // namespace

Choice choose_types(const mdev::VgpuInventory& inventory, const std::set<vfio::PciAddress>& gpus,
                    const TypeRequest& desired_state) {
  Choice out;
  for (const mdev::VgpuGpu& gpu : inventory.gpus) {
    if (!gpus.empty() && !gpus.contains(gpu.address())) continue;
    const auto& fit = out.gpus.emplace_back(choose_on(gpu, desired_state)).fit;
    if (fit && (!out.smallest || rank(*fit) < rank(*out.smallest))) out.smallest = fit;
  }
  if (!out.smallest) {
    out.reason = nowhere(out.gpus, desired_state);
    return out;
  }
  out.smallest->available = 0;
  for (const GpuChoice& gpu : out.gpus) {
    if (!gpu.fit || gpu.fit->name != out.smallest->name) continue;
    out.smallest->available += gpu.fit->available;
    out.smallest->fewer_may_fit = out.smallest->fewer_may_fit || gpu.fit->fewer_may_fit;
  }
  return out;
}

}  // namespace ferry::vgpu

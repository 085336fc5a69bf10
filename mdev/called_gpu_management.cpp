// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "mdev/gpu_management.h"

namespace ferry::mdev {
namespace {

using nlohmann::json;

// Loading the library initialises each GPU that has no other client, which takes seconds per GPU.
constexpr std::chrono::seconds kReadPatience{60};

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
std::optional<std::uint32_t> number_or_none(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<std::uint32_t>();
}

json to_json(const ManagedGpu& gpu) {
  json profiles = json::array();
  for (const GpuInstanceProfile& profile : gpu.profiles)
    profiles.push_back(
        {profile.id, profile.name, profile.most, profile.left, profile.slices, profile.size, profile.starts});
  json instances = json::array();
  for (const GpuInstance& instance : gpu.instances)
    instances.push_back({instance.id, instance.profile, or_null(instance.start), instance.divided});
  json types = json::array();
  for (const ManagedType& type : gpu.types) {
    types.push_back({type.id, type.name, type.framebuffer, or_null(type.instance_profile),
                     or_null(type.most_per_gpu), or_null(type.most_per_instance), type.size,
                     type.placements});
  }
  return {{"vgpu_host", gpu.vgpu_host},
          {"mig", gpu.mig},
          {"mig_pending", gpu.mig_pending},
          {"mixed_sizes", gpu.mixed_sizes},
          {"profiles", profiles},
          {"instances", instances},
          {"types", types}};
}

ManagedGpu gpu_from(const json& value) {
  ManagedGpu gpu{.vgpu_host = value.at("vgpu_host"),
                 .mig = value.at("mig"),
                 .mig_pending = value.at("mig_pending"),
                 .mixed_sizes = value.at("mixed_sizes")};
  for (const json& profile : value.at("profiles")) {
    gpu.profiles.push_back({.id = profile.at(0),
                            .name = profile.at(1),
                            .most = profile.at(2),
                            .left = profile.at(3),
                            .slices = profile.at(4),
                            .size = profile.at(5),
                            .starts = profile.at(6).get<std::vector<std::uint32_t>>()});
  }
  for (const json& instance : value.at("instances"))
    gpu.instances.push_back({.id = instance.at(0),
                             .profile = instance.at(1),
                             .start = number_or_none(instance.at(2)),
                             .divided = instance.at(3)});
  for (const json& type : value.at("types")) {
    gpu.types.push_back({.id = type.at(0),
                         .name = type.at(1),
                         .framebuffer = type.at(2),
                         .instance_profile = number_or_none(type.at(3)),
                         .most_per_gpu = number_or_none(type.at(4)),
                         .most_per_instance = number_or_none(type.at(5)),
                         .size = type.at(6),
                         .placements = type.at(7).get<std::vector<std::uint32_t>>()});
  }
  return gpu;
}

// Only codes of ferry_category() are sent as they are; no error here has an errno.
json to_json(const Error& error) {
  const bool ours = error.code.category() == ferry_category();
  return {{"code", ours ? error.code.value() : static_cast<int>(Errc::failed)},
          {"message", error.message},
          {"hint", error.hint}};
}

Result<json> ask(HostWriter& writer, const vfio::PciAddress& gpu, const std::string& act,
                 std::uint32_t number, std::string what) {
  const bool changes = act != "read";
  const json request = {{"act", act}, {"gpu", gpu.text()}, {"number", number}};
  const auto answer = writer.call({.name = std::string(kGpuLibrary),
                                   .request = request.dump(),
                                   .device = gpu.text(),
                                   .changes = changes,
                                   .what = what},
                                  changes ? kWriteDeadline : kReadPatience);
  if (!answer) return fail(answer.error());
  json said;
  try {
    said = parse_whole_json(*answer);
  } catch (const json::exception&) {
    said = nullptr;  // handled like any other answer that is no object
  }
  if (!said.is_object()) return fail(Errc::failed, what + ": the answer cannot be read");
  if (!said.contains("error")) return said;
  const json& error = said["error"];
  return fail(Error{.code = make_error_code(static_cast<Errc>(error.at("code").get<int>())),
                    .message = error.at("message"),
                    .hint = error.at("hint")}
                  .during(gpu.text()));
}

Result<> order(HostWriter& writer, const vfio::PciAddress& gpu, const std::string& act, std::uint32_t number,
               std::string what) {
  return ask(writer, gpu, act, number, std::move(what)).map([](const json&) {});
}

json answered(GpuManagement& management, const json& request) {
  const auto address = vfio::PciAddress::parse(request.at("gpu").get<std::string>());
  if (!address) return {{"error", to_json(address.error())}};
  const std::string act = request.at("act");
  if (act == "read") {
    const auto gpu = management.read(*address);
    if (!gpu) return {{"error", to_json(gpu.error())}};
    return {{"gpu", to_json(*gpu)}};
  }
  const auto number = request.at("number").get<std::uint32_t>();
  Result<> done = fail(Errc::usage, "no such act: " + act);
  if (act == "make_instance") done = management.make_instance(*address, number);
  if (act == "remove_instance") done = management.remove_instance(*address, number);
  if (act == "set_mixed_sizes") done = management.set_mixed_sizes(*address, number != 0);
  if (act == "set_mig") done = management.set_mig(*address, number != 0);
  if (!done) return {{"error", to_json(done.error())}};
  return json::object();
}

}  // namespace

Result<ManagedGpu> CalledGpuManagement::read(const vfio::PciAddress& gpu) {
  const std::string what = fmt::format("read what NVML says of {}", gpu.text());
  const auto answer = ask(*writer_, gpu, "read", 0, what);
  if (!answer) {
    Error error = answer.error();
    // A read changed nothing, so the GPU need not be left alone.
    if (error.code == Errc::stuck) error.code = Errc::failed;
    return fail(std::move(error));
  }
  try {
    return gpu_from(answer->at("gpu"));
  } catch (const json::exception& exception) {
    return fail(Errc::failed, fmt::format("{}: {}", what, exception.what()));
  }
}

Result<> CalledGpuManagement::make_instance(const vfio::PciAddress& gpu, std::uint32_t profile) {
  return order(*writer_, gpu, "make_instance", profile,
               fmt::format("make a GPU instance of profile {} on {}", profile, gpu.text()));
}
Result<> CalledGpuManagement::remove_instance(const vfio::PciAddress& gpu, std::uint32_t instance) {
  return order(*writer_, gpu, "remove_instance", instance,
               fmt::format("remove GPU instance {} of {}", instance, gpu.text()));
}
Result<> CalledGpuManagement::set_mixed_sizes(const vfio::PciAddress& gpu, bool on) {
  return order(*writer_, gpu, "set_mixed_sizes", on ? 1 : 0,
               fmt::format("switch vGPUs of different sizes {} on {}", on ? "on" : "off", gpu.text()));
}
Result<> CalledGpuManagement::set_mig(const vfio::PciAddress& gpu, bool on) {
  return order(*writer_, gpu, "set_mig", on ? 1 : 0,
               fmt::format("switch MIG mode {} on {}", on ? "on" : "off", gpu.text()));
}

std::string answer_gpu_call(GpuManagement& management, std::string_view request) {
  json answer;
  try {
    answer = answered(management, parse_whole_json(request));
  } catch (const json::exception& exception) {
    answer = {{"error", to_json({.code = Errc::usage, .message = exception.what()})}};
  }
  // Names come from a driver. Bytes that are no UTF-8 are replaced, so that dump() does not throw.
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string answer_nvml_call(const HostFs& host, std::string_view request) {
  Nvml nvml(host);
  return answer_gpu_call(nvml, request);
}

}  // namespace ferry::mdev

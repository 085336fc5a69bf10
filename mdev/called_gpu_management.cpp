// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json_fields.h"
#include "common/text/whole_json.h"
#include "common/text/words.h"
#include "mdev/gpu_management.h"

namespace ferry::mdev {

constexpr Words<GpuSwitch, 3> words_of(GpuSwitch /*mode*/) {
  return {{{"unsupported", GpuSwitch::unsupported}, {"off", GpuSwitch::off}, {"on", GpuSwitch::on}}};
}

template <typename Io, SameAs<GpuInstanceProfile> Value>
void fields(Io& io, Value& profile) {
  io("id", profile.id);
  io("name", profile.name);
  io("most", profile.most);
  io("left", profile.left);
  io("slices", profile.slices);
  io("size", profile.size);
  io("starts", profile.starts);
}

template <typename Io, SameAs<GpuInstance> Value>
void fields(Io& io, Value& instance) {
  io("id", instance.id);
  io("profile", instance.profile);
  io("start", instance.start);
  io("divided", instance.divided);
}

template <typename Io, SameAs<ManagedType> Value>
void fields(Io& io, Value& type) {
  io("id", type.id);
  io("name", type.name);
  io("framebuffer", type.framebuffer);
  io("instance_profile", type.instance_profile);
  io("most_per_gpu", type.most_per_gpu);
  io("most_per_instance", type.most_per_instance);
  io("size", type.size);
  io("placements", type.placements);
}

template <typename Io, SameAs<ManagedGpu> Value>
void fields(Io& io, Value& gpu) {
  io("vgpu_host", gpu.vgpu_host);
  io("mig", gpu.mig);
  io("mig_pending", gpu.mig_pending);
  io("mixed_sizes", gpu.mixed_sizes);
  io("profiles", gpu.profiles);
  io("instances", gpu.instances);
  io("types", gpu.types);
}

namespace {

using nlohmann::json;

// Loading the library initialises each GPU that has no other client, which takes seconds per GPU.
constexpr std::chrono::seconds kReadPatience{60};

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
    return {{"gpu", written_fields(*gpu)}};
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
  std::string fault;
  auto out = read_fields<ManagedGpu>(JsonObject(json_at(*answer, "gpu"), fault));
  if (!fault.empty()) return fail(Errc::failed, what + ": " + fault);
  return out;
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

// SPDX-License-Identifier: Apache-2.0
// dra-request: calls a DRA driver as the kubelet does. See usage().
#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <nlohmann/json.hpp>

#include "dra.grpc.pb.h"
#include "pluginregistration.grpc.pb.h"

namespace {

namespace wire = ::k8s::io::kubelet::pkg::apis::dra::v1;
using Driver = wire::DRAPlugin::Stub;
using Registration = ::pluginregistration::Registration::Stub;
using Json = nlohmann::ordered_json;

// The kubelet's limit for a call.
constexpr std::chrono::seconds kLimit{45};

int usage() {
  std::cerr << R"(usage: dra-request register REGISTRATION-SOCKET
       dra-request prepare|unprepare SOCKET NAMESPACE/NAME/UID...
register tells the driver that a kubelet has registered it, and prints
  {"type", "name", "endpoint": the driver's SOCKET, "supported_versions": [VERSION]}
The others make one call for all these claims, and print
  {UID: {"error", "devices": [{"request_names": [NAME], "pool_name", "device_name", "cdi_device_ids": [ID]}]}}
Exit status: 0; 1 if a claim has an error or no entry, or the driver does not answer within 45 s.
)";
  return 2;
}

template <typename Stub, typename Request, typename Response>
Response call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
              const std::string& socket, const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  Stub stub(grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) throw std::runtime_error(socket + ": " + status.error_message());
  return response;
}

/// A list of texts of a message.
template <typename Texts>
Json texts(const Texts& all) {
  return std::vector<std::string>(all.begin(), all.end());
}

/// "studio/render-a/5be0c3aa-2f4d-4a3e-8d55-9d1f5a0c7711"
wire::Claim claim_of(const std::string& word) {
  const auto first = word.find('/');
  const auto last = word.rfind('/');
  if (first == last) throw std::runtime_error(word + " is no NAMESPACE/NAME/UID");
  wire::Claim claim;
  claim.set_namespace_(word.substr(0, first));
  claim.set_name(word.substr(first + 1, last - first - 1));
  claim.set_uid(word.substr(last + 1));
  return claim;
}

template <typename Request>
Request request_for(const std::vector<std::string>& claims) {
  Request request;
  for (const std::string& claim : claims) *request.add_claims() = claim_of(claim);
  return request;
}

Json devices_of(const wire::NodePrepareResourceResponse& claim) {
  Json out = Json::array();
  for (const wire::Device& device : claim.devices())
    out.push_back({{"request_names", texts(device.request_names())},
                   {"pool_name", device.pool_name()},
                   {"device_name", device.device_name()},
                   {"cdi_device_ids", texts(device.cdi_device_ids())}});
  return out;
}

Json devices_of(const wire::NodeUnprepareResourceResponse& /*claim*/) {
  return Json::array();
}

/// Prints an answer. The exit status.
template <typename Response>
int show(const Response& response, const std::vector<std::string>& claims) {
  Json out = Json::object();
  for (const auto& [uid, claim] : response.claims())
    out[uid] = {{"error", claim.error()}, {"devices", devices_of(claim)}};
  std::cout << out.dump() << "\n";
  const bool done = std::all_of(claims.begin(), claims.end(), [&](const std::string& word) {
    const auto found = out.find(claim_of(word).uid());
    return found != out.end() && found->at("error").get_ref<const std::string&>().empty();
  });
  return done ? 0 : 1;
}

int register_driver(const std::string& socket) {
  const auto info = call(&Registration::GetInfo, socket, pluginregistration::InfoRequest());
  pluginregistration::RegistrationStatus status;
  status.set_plugin_registered(true);
  call(&Registration::NotifyRegistrationStatus, socket, status);
  const Json out = {{"type", info.type()},
                    {"name", info.name()},
                    {"endpoint", info.endpoint()},
                    {"supported_versions", texts(info.supported_versions())}};
  std::cout << out.dump() << "\n";
  return 0;
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "register") return register_driver(words[1]);
  if (words.size() < 3) return usage();
  const std::vector<std::string> claims(words.begin() + 2, words.end());
  if (words[0] == "prepare")
    return show(
        call(&Driver::NodePrepareResources, words[1], request_for<wire::NodePrepareResourcesRequest>(claims)),
        claims);
  if (words[0] == "unprepare")
    return show(call(&Driver::NodeUnprepareResources, words[1],
                     request_for<wire::NodeUnprepareResourcesRequest>(claims)),
                claims);
  return usage();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "dra-request: " << error.what() << "\n";
    return 1;
  }
}

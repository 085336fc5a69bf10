// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "dra/publish/slice_publisher.h"
#include "kube/api_client.h"
#include "kube/api_error.h"
#include "kube/api_path.h"

namespace ferry::dra {
namespace {

constexpr const char* kTrial = "create a ResourceSlice as a trial";
constexpr int kNotFound = 404;
constexpr int kInvalid = 422;

}  // namespace

Result<ServerFeatures> features_of_answer(const Result<kube::ApiReply>& reply) {
  const kube::Asked asked{
      .verb = "create", .kind = kube::kResourceSlices, .object = "a ResourceSlice as a trial"};
  if (!reply) return fail(Error(reply.error()).during(kTrial));
  if (reply->status == kNotFound)
    return fail(
        Errc::unsupported, "the API server has no resource.k8s.io/v1, so no ResourceSlices are published",
        "use Kubernetes 1.34 or later, or do without DRA (dra.enabled=false in the chart): the device "
        "plugin serves the GPUs on any version");
  // Kubernetes 1.34 wants counter sets in the slice of their devices, and has none of the features.
  if (reply->status == kInvalid) return ServerFeatures();
  if (reply->status < 200 || reply->status >= 300) return fail(kube::error_of(*reply, asked));
  auto features = features_of_probe(parse_answer_json(reply->body));
  if (!features) return fail(std::move(features).error().during(kTrial));
  return features;
}

FeatureProbe::~FeatureProbe() {
  if (call_) transport_.cancel(*call_);
}

void FeatureProbe::begin(const SliceOwner& owner, Done done) {
  kube::ApiListener listener{.ended = [this, done = std::move(done)](Result<kube::ApiReply> reply) {
    call_.reset();
    done(features_of_answer(reply));
  }};
  // The path of a kind without a namespace has no name in it, so it cannot fail.
  const std::string path = kube::collection_of(kube::kResourceSlices, {}).value_or("");
  call_ = transport_.send(
      {.method = "POST",
       .path = path + fmt::format("?dryRun=All&fieldValidation=Ignore&fieldManager={}",
                                  kube::ApiClient::kFieldManager),
       .content_type = "application/json",
       .body = slice_json(probe_slice(owner)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)},
      std::move(listener));
}

}  // namespace ferry::dra

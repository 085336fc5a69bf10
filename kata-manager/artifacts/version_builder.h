// SPDX-License-Identifier: Apache-2.0
// Internal: builds a version from its manifest, in the staging folder.
#pragma once

#include <functional>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/fetch/fetch.h"
#include "kata-manager/fetch/manifest.h"
#include "kata-manager/fetch/registry.h"

namespace ferry::kata {

/// Downloads the layers into the store's `blobs`, continuing an earlier try, and makes the folder `staging`
/// of them, which must not exist yet. A layer's content goes there only after its digest matched.
Result<> build_version(const HostFs& host, const ArtifactPlaces& places, RegistryClient& registry,
                       const ArtifactManifest& manifest, const FetchRequest& request,
                       const FetchWorld& world);

}  // namespace ferry::kata

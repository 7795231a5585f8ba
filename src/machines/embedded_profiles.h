// The shipped profiles and topologies as JSON texts, put here at build time from profiles/.
#pragma once

namespace vitrine::machines {

extern const char* const kServerProfiles;
extern const char* const kOtherProfiles;
extern const char* const kTopologies;

}  // namespace vitrine::machines

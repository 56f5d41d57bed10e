/* SPDX-License-Identifier: Apache-2.0 */
/* See info.h.  The transports stand only in the text that UCX prints about a context: lines
 * with the word "resource" that end in transport/device.  A text that reads otherwise yields
 * none. */
#include "fabric/ucx/info.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/ucx/lib.h"

#if !VB_HAVE_UCP

int ucx_info(struct ucx_info *out, const char **why)
{
	memset(out, 0, sizeof(*out));
	*why = ucx_absent();
	return -ENODEV;
}

#else

static void add_transport(struct ucx_info *out, const char *name)
{
	size_t used = strlen(out->transports);

	if (used + strlen(name) + 2 <= sizeof(out->transports))
		snprintf(out->transports + used, sizeof(out->transports) - used, "%s%s",
			 used > 0 ? " " : "", name);
}

static void read_transports(struct ucx_info *out, char *text)
{
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line != NULL;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *name = strrchr(line, ' ');

		if (strstr(line, " resource ") != NULL && name != NULL && strchr(name, '/') != NULL)
			add_transport(out, name + 1);
	}
}

static void ask_context(const struct ucx_lib *lib, ucp_context_h context, struct ucx_info *out)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	if (to == NULL)
		return;
	lib->ucp_context_print_info(context, to);
	fclose(to);
	if (text != NULL)
		read_transports(out, text);
	(free)(text);
}

int ucx_info(struct ucx_info *out, const char **why)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
				     .features = UCP_FEATURE_AM};
	const struct ucx_lib *lib = ucx_lib();
	unsigned major, minor, release;
	ucp_config_t *config;
	ucp_context_h context;

	memset(out, 0, sizeof(*out));
	*why = ucx_absent();
	if (lib == NULL)
		return -ENODEV;
	lib->ucp_get_version(&major, &minor, &release);
	snprintf(out->version, sizeof(out->version), "%u.%u.%u", major, minor, release);
	if (lib->ucp_config_read(NULL, NULL, &config) != UCS_OK)
		return 0;
	if (lib->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context) ==
	    UCS_OK) {
		ask_context(lib, context, out);
		lib->ucp_cleanup(context);
	}
	lib->ucp_config_release(config);
	return 0;
}

#endif

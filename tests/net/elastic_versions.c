/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server and a client of two versions: the card that each shows when it greets is bent on its way out.  Both
 * refuse at once, and the lines of both name both versions.
 */
#include "elastic.h"

#include "vb_config.h"

#define PATIENT ",bound=2s"

void __real_net_elastic_card(const struct net_fabric *f, uint32_t host, uint8_t to[NET_CARD]);
void __wrap_net_elastic_card(const struct net_fabric *f, uint32_t host, uint8_t to[NET_CARD]);

static enum { NUMBER, NAME, NO_TEXT } bent;

void __wrap_net_elastic_card(const struct net_fabric *f, uint32_t host, uint8_t to[NET_CARD])
{
	char *name;

	__real_net_elastic_card(f, host, to);
	name = memmem(to, NET_CARD, VB_VERSION, sizeof(VB_VERSION));
	MUST(name != NULL);
	if (bent == NUMBER)
		to[0] = 77;
	else if (bent == NAME)
		memcpy(name, "99.9", sizeof("99.9"));
	else
		memset(name, '\n', 24); /* and no end of it */
}

static void names_both(const char *said, const char *words)
{
	char line[200];

	snprintf(line, sizeof(line), ": it is another version of Verbena, %s", words);
	if (strstr(said, line) == NULL ||
	    strstr(said, ", and this is " VB_VERSION " (card 4)") == NULL)
		fail_msg("\"%s\" and not: %s", said, line);
}

static const char *text_of(FILE *log)
{
	static char text[4096];

	rewind(log);
	text[fread(text, 1, sizeof(text) - 1, log)] = '\0';
	return text;
}

/* Each end reads a card that is not its own. */
static void refused(const char *words)
{
	FILE *log[] = {tmpfile(), tmpfile()};
	struct world w;
	pid_t pid;

	assert_true(log[0] != NULL && log[1] != NULL);
	world_open(&w, 1, PATIENT);
	w.pid[0] = child();
	if (w.pid[0] == 0) {
		dup2(fileno(log[0]), STDERR_FILENO);
		server_main(&w, 0, NULL);
	}
	await(get(&w.b->server[0].up));
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;

		dup2(fileno(log[1]), STDERR_FILENO);
		MUST_BE(-EPROTO, open_client(&w, &f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	for (unsigned i = 0; i < 2; i++) {
		names_both(text_of(log[i]), words);
		fclose(log[i]);
	}
}

static void test_versions(void **state)
{
	bent = NUMBER;
	refused(VB_VERSION " (card 77)");
	bent = NAME;
	refused("99.9 (card ");
	bent = NO_TEXT;
	refused("????????????????????????");
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_versions)};

	return cmocka_run_group_tests_name("elastic: versions", tests, NULL, NULL);
}

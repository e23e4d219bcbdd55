/* SPDX-License-Identifier: MIT
 * One line on standard error that grows while something takes long. */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "report.h"

#define WIDTH          40
#define FIRST_AFTER_NS 300000000
#define AGAIN_AFTER_NS 50000000

static struct {
    const char *label; /* NULL: nothing is going on */
    int64_t next_ns;   /* not before */
    bool visible;
} line;

void progress_begin(const char *label)
{
    progress_end();
    if (!isatty(STDERR_FILENO)) return;
    line.label = label;
    line.next_ns = now_ns() + FIRST_AFTER_NS;
}

void progress_show(double done, const char *text)
{
    const int64_t now = line.label ? now_ns() : 0;
    if (!line.label || now < line.next_ns) return;
    line.next_ns = now + AGAIN_AFTER_NS;
    line.visible = true;
    if (!(done > 0.0)) done = 0.0;
    if (done > 1.0) done = 1.0;
    char bar[WIDTH + 1];
    const size_t n = (size_t)(done * WIDTH);
    memset(bar, '#', n);
    memset(bar + n, ' ', WIDTH - n);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%%s%s\033[K", line.label, bar, 100.0 * done, text ? " " : "",
            text ? text : "");
    fflush(stderr);
}

void progress_end(void)
{
    if (line.visible) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    line.visible = false;
    line.label = NULL;
}

bool progress_step(void *user, double done)
{
    (void)user;
    progress_show(done, NULL);
    return !interrupted();
}

/* SmashBench's five kernels (Tang, table 5.1), which describes each in a line; everything beyond that line is this file's. */
#include "kernels.h"

/* A balanced search tree of the keys 0 to n − 1. Its nodes lie in an order that has nothing to do with their keys: node `place` of the array's
   i-th element is that of key i. */
struct node {
    uint64_t key, left, right, place; /* 0 = no child; numbers of nodes count from 1 */
};

static uint64_t nodes(const struct ck_work *w)
{
    return w->own_bytes / sizeof(struct node);
}

/* Puts the keys of [first, end) below `slot`: the middle one there, the halves below it. The depth is the logarithm of their number. */
static void grow(struct node *tree, uint64_t *slot, uint64_t first, uint64_t end, const struct ck_work *w)
{
    if (first == end || ck_in_vain(w, first)) {
        *slot = 0;
        return;
    }
    uint64_t middle = first + (end - first) / 2, at = tree[middle].place;
    *slot = at + 1;
    tree[at].key = middle;
    grow(tree, &tree[at].left, first, middle, w);
    grow(tree, &tree[at].right, middle + 1, end, w);
}

void ck_bst_init(struct ck_work *w)
{
    struct node *tree = (struct node *)w->own;
    uint64_t n = nodes(w), x = w->id, root;
    for (uint64_t i = 0; i < n && !ck_in_vain(w, i); i++) {
        x = ck_step(x);
        uint64_t j = (x >> 32) % (i + 1);
        tree[i].place = tree[j].place;
        tree[j].place = i;
    }
    grow(tree, &root, 0, n, w);
}

/* Looks up random keys in a binary search tree. Unit: lookups. */
void ck_bst(struct ck_work *w)
{
    const struct node *tree = (const struct node *)w->own;
    uint64_t n = nodes(w), x = w->id, sum = 0, root = tree[n / 2].place + 1;
    for (uint64_t m = ck_next(w, 0, 64); m; m = ck_next(w, m, 64)) {
        for (uint64_t i = 0; i < m; i++) {
            x = ck_step(x);
            uint64_t key = (x >> 32) % n, at = root;
            while (at && tree[at - 1].key != key)
                at = key < tree[at - 1].key ? tree[at - 1].left : tree[at - 1].right;
            sum += at;
            w->wrong += at == 0; /* every key is in the tree */
        }
    }
    w->sum = sum;
}

/* Changes random words of an array, the next place known only when the last word has come. Unit: accesses. */
void ck_naive(struct ck_work *w)
{
    uint64_t *word = (uint64_t *)w->own, words = w->own_bytes / 8, x = w->id;
    for (uint64_t n = ck_next(w, 0, 512); n; n = ck_next(w, n, 512)) {
        for (uint64_t i = 0; i < n; i++) {
            x = ck_step(x);
            x += word[(x >> 32) % words]++;
        }
    }
    w->sum = x;
}

/* The same, faster: no division, and no access waits for another. Unit: accesses. */
void ck_er_naive(struct ck_work *w)
{
    uint64_t *word = (uint64_t *)w->own, words = w->own_bytes / 8, x = w->id;
    for (uint64_t n = ck_next(w, 0, 4096); n; n = ck_next(w, n, 4096)) {
        for (uint64_t i = 0; i < n; i++) {
            x = ck_step(x);
            word[(uint64_t)((unsigned __int128)x * words >> 64)]++;
        }
    }
    w->sum = x;
}

#define CUBES 4

/* Copies a block, half as long in each direction, from somewhere in one cube to somewhere in the next, and so on. Unit: words copied. */
void ck_blockie(struct ck_work *w)
{
    uint64_t side = 1;
    while (CUBES * 8 * (side + 1) * (side + 1) * (side + 1) <= w->own_bytes)
        side++;
    uint64_t half = side / 2, cube = side * side * side, x = w->id, turn = 0;
    uint64_t column = 0, row = 0, plane = half; /* in the block; beyond its last plane, so that the first block is chosen */
    uint64_t *from = 0, *to = 0;
    for (uint64_t n = ck_next(w, 0, 4096); n; n = ck_next(w, n, 4096)) {
        for (uint64_t left = n, some; left; left -= some) {
            if (plane == half) {
                uint64_t corner[2];
                for (int k = 0; k < 2; k++) {
                    x = ck_step(x);
                    uint64_t r = x >> 16, room = side - half + 1;
                    corner[k] = r % room + r / room % room * side + r / room / room % room * side * side;
                }
                from = (uint64_t *)w->own + turn % CUBES * cube + corner[0];
                to = (uint64_t *)w->own + (turn + 1) % CUBES * cube + corner[1];
                turn++;
                plane = 0;
            }
            uint64_t first = plane * side * side + row * side + column;
            some = ck_fit(left, column, half);
            for (uint64_t i = first; i < first + some; i++)
                to[i] = from[i];
            column += some;
            row += column == half;
            plane += row == half;
            column = column == half ? 0 : column;
            row = row == half ? 0 : row;
        }
    }
    w->sum = x;
}

/* Copies an array to another, and that one back, over and over. Unit: words copied. */
void ck_sledge(struct ck_work *w)
{
    uint64_t words = w->own_bytes / 16, at = 0;
    uint64_t *from = (uint64_t *)w->own, *to = from + words;
    for (uint64_t n = ck_next(w, 0, 8192); n; n = ck_next(w, n, 8192)) {
        for (uint64_t left = n, some; left; left -= some) {
            some = ck_fit(left, at, words);
            for (uint64_t i = at; i < at + some; i++)
                to[i] = from[i];
            at += some;
            if (at == words) {
                uint64_t *other = from;
                from = to;
                to = other;
                at = 0;
            }
        }
    }
    w->sum = from[0];
}

// What the tree finds is what comparing with every sequence finds.
#include "engine/token_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace headrace;

namespace {

using Tokens = std::vector<Token>;

size_t common(const Tokens & a, const Tokens & b) {
    size_t same = 0;
    while (same < std::min(a.size(), b.size()) && a[same] == b[same]) {
        same++;
    }
    return same;
}

// New sequences branch off old ones: few are unrelated, as in real prompts.
Tokens random_tokens(std::mt19937 & random, const std::vector<Tokens> & old) {
    Tokens tokens;
    if (!old.empty() && random() % 8 != 0) {
        tokens = old[random() % old.size()];
        tokens.resize(random() % (tokens.size() + 1));
    }
    for (size_t more = random() % 12; more > 0 || tokens.empty(); more -= more > 0 ? 1 : 0) {
        tokens.push_back(static_cast<Token>(random() % 3));
    }
    return tokens;
}

// Every node is there for a reason, and says the truth about itself.
void check_shape(const TokenTree::Node * node) {
    REQUIRE((node->entry != 0 || node->children.size() >= 2));
    REQUIRE(node->depth == node->parent->depth + node->edge.size());
    REQUIRE(!node->edge.empty());
    for (const auto & [token, child] : node->children) {
        REQUIRE(child->parent == node);
        REQUIRE(child->edge.front() == token);
        check_shape(child.get());
    }
}

bool is_at_or_below(const TokenTree::Node * node, const TokenTree::Node * top) {
    while (node != nullptr && node != top) {
        node = node->parent;
    }
    return node == top;
}

} // namespace

TEST_CASE("token_tree: walks over thousands of sequences agree with comparing them all, also after erasing") {
    std::mt19937                        random(1);
    TokenTree                           tree;
    std::vector<Tokens>                 all;
    std::map<Tokens, TokenTree::Node *> nodes;
    for (uint64_t id = 1; id <= 4000; id++) {
        const Tokens tokens = random_tokens(random, all);
        all.push_back(tokens);
        nodes[tokens] = tree.insert(tokens, id);
        if (id % 3 == 0) {
            auto gone = std::next(nodes.begin(), static_cast<ptrdiff_t>(random() % nodes.size()));
            tree.erase(gone->second);
            nodes.erase(gone);
        }
    }
    REQUIRE(nodes.size() > 2000);
    for (const auto & [tokens, node] : nodes) {
        REQUIRE(TokenTree::path(node) == tokens); // addresses have held through all splits and merges
        REQUIRE(tree.find(tokens) == node);
        if (node->parent->parent == nullptr) {
            check_shape(node);
        }
    }
    size_t partial = 0;
    for (int i = 0; i < 1500; i++) {
        const Tokens query  = random_tokens(random, all);
        size_t       shared = 0;
        size_t       whole  = 0;
        for (const auto & [tokens, node] : nodes) {
            const size_t same = common(tokens, query);
            shared            = std::max(shared, same);
            whole             = same == tokens.size() ? std::max(whole, same) : whole;
        }
        const TokenTree::Walk walk = tree.walk(query);
        REQUIRE(walk.shared == shared);
        REQUIRE((walk.whole != nullptr ? walk.whole->depth : 0) == whole);
        REQUIRE((walk.below == nullptr) == (shared == 0));
        partial += shared > whole ? 1 : 0;
        for (const auto & [tokens, node] : nodes) {
            if (walk.below != nullptr && is_at_or_below(node, walk.below)) {
                REQUIRE(common(tokens, query) == shared);
            }
        }
    }
    CHECK(partial > 300); // both kinds of answers have been asked for
    while (!nodes.empty()) {
        tree.erase(nodes.begin()->second);
        nodes.erase(nodes.begin());
    }
    CHECK(tree.empty());
}

TEST_CASE("token_tree: a sequence within another has that one as its prefix, and no other") {
    TokenTree    tree;
    const auto * a    = tree.insert(Tokens{1, 2}, 1);
    const auto * b    = tree.insert(Tokens{1, 2, 3, 4}, 2);
    const auto * c    = tree.insert(Tokens{1, 2, 3, 5}, 3);
    const auto * none = tree.insert(Tokens{9}, 4);
    CHECK(TokenTree::prefix_of(b) == a);
    CHECK(TokenTree::prefix_of(c) == a);
    CHECK(TokenTree::prefix_of(a) == nullptr);
    CHECK(TokenTree::prefix_of(none) == nullptr);
    CHECK(tree.find(Tokens{1, 2, 3}) == nullptr);
}

TEST_CASE("token_tree: a very deep tree is taken down without recursion") {
    TokenTree tree;
    Tokens    tokens;
    for (uint64_t id = 1; id <= 20000; id++) { // each insert walks down from the top
        tokens.push_back(static_cast<Token>(id));
        if (id % 2 == 0) {
            tree.insert(tokens, id);
        }
    }
    CHECK(tree.walk(tokens).whole->depth == 20000);
}

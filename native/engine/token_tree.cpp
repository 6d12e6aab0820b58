// See token_tree.h.
#include "engine/token_tree.h"

#include <algorithm>
#include <utility>

namespace headrace {

// How many tokens of `rest` the edge agrees with.
static size_t agreement(const std::vector<Token> & edge, std::span<const Token> rest) {
    const auto length = static_cast<ptrdiff_t>(std::min(edge.size(), rest.size()));
    return static_cast<size_t>(std::mismatch(edge.begin(), edge.begin() + length, rest.begin()).first -
                               edge.begin());
}

// Not left to the nodes' own destructors: they would recurse, and a long conversation is a deep tree.
TokenTree::~TokenTree() {
    std::vector<std::unique_ptr<Node>> doomed;
    const auto                         orphan = [&](Node & node) {
        for (auto & [token, child] : node.children) {
            doomed.push_back(std::move(child));
        }
        node.children.clear();
    };
    orphan(root_);
    while (!doomed.empty()) {
        const std::unique_ptr<Node> node = std::move(doomed.back());
        doomed.pop_back();
        orphan(*node);
    }
}

TokenTree::Node * TokenTree::insert(std::span<const Token> tokens, uint64_t entry) {
    Node * node = &root_;
    while (node->depth < tokens.size()) {
        const std::span<const Token> rest  = tokens.subspan(node->depth);
        const auto                   found = node->children.find(rest.front());
        if (found == node->children.end()) {
            auto leaf    = std::make_unique<Node>();
            leaf->edge   = {rest.begin(), rest.end()};
            leaf->depth  = tokens.size();
            leaf->parent = node;
            node         = node->children.emplace(rest.front(), std::move(leaf)).first->second.get();
            break;
        }
        std::unique_ptr<Node> & child = found->second;
        const size_t            same  = agreement(child->edge, rest);
        if (same < child->edge.size()) {
            // The child keeps its address: entries know their nodes by it.
            const auto cut    = child->edge.begin() + static_cast<ptrdiff_t>(same);
            auto       middle = std::make_unique<Node>();
            middle->edge      = {child->edge.begin(), cut};
            middle->depth     = node->depth + same;
            middle->parent    = node;
            std::vector<Token> tail(cut, child->edge.end());
            middle->children.emplace(tail.front(), nullptr);
            child->edge                      = std::move(tail);
            child->parent                    = middle.get();
            middle->children.begin()->second = std::exchange(child, nullptr);
            child                            = std::move(middle);
        }
        node = child.get();
    }
    node->entry = entry;
    return node;
}

TokenTree::Walk TokenTree::walk(std::span<const Token> tokens) const {
    Walk         walk;
    const Node * node = &root_;
    while (node->depth < tokens.size()) {
        const std::span<const Token> rest  = tokens.subspan(node->depth);
        const auto                   found = node->children.find(rest.front());
        if (found == node->children.end()) {
            break;
        }
        const Node * child = found->second.get();
        const size_t same  = agreement(child->edge, rest);
        walk.shared        = node->depth + same;
        walk.below         = child;
        if (same < child->edge.size()) {
            break;
        }
        node = child;
        if (node->entry != 0) {
            walk.whole = node;
        }
    }
    return walk;
}

const TokenTree::Node * TokenTree::find(std::span<const Token> tokens) const {
    const Walk found = walk(tokens);
    return found.whole != nullptr && found.whole->depth == tokens.size() ? found.whole : nullptr;
}

void TokenTree::erase(Node * node) {
    node->entry = 0;
    while (node->parent != nullptr && node->entry == 0 && node->children.size() < 2) {
        Node *     parent = node->parent;
        const auto slot   = parent->children.find(node->edge.front());
        if (node->children.empty()) {
            parent->children.erase(slot);
            node = parent;
            continue;
        }
        std::vector<Token> joined = node->edge; // what may throw comes before what changes the tree
        const auto &       tail   = node->children.begin()->second->edge;
        joined.insert(joined.end(), tail.begin(), tail.end());
        std::unique_ptr<Node> child = std::move(node->children.begin()->second);
        child->edge                 = std::move(joined);
        child->parent               = parent;
        slot->second                = std::move(child);
        return;
    }
}

std::vector<Token> TokenTree::path(const Node * node) {
    std::vector<Token> tokens(node->depth);
    for (; node->parent != nullptr; node = node->parent) {
        std::copy(node->edge.begin(), node->edge.end(),
                  tokens.begin() + static_cast<ptrdiff_t>(node->depth - node->edge.size()));
    }
    return tokens;
}

const TokenTree::Node * TokenTree::prefix_of(const Node * node) {
    do {
        node = node->parent;
    } while (node != nullptr && node->entry == 0);
    return node;
}

} // namespace headrace

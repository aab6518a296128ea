"""The tree of a conversation's messages: which branch is shown, and which messages stand side by side. No texts."""

from collections import defaultdict
from uuid import UUID

from chatsite.chat.models import Conversation


class Tree:
    """Messages by id, in the order they were written; one query."""

    def __init__(self, conversation: Conversation) -> None:
        written = conversation.messages.order_by("created_at", "id").values_list("pk", "parent_id")
        self._shown_leaf = conversation.shown_leaf
        self._parents: dict[UUID, UUID | None] = dict(written)
        self._rank = {message: rank for rank, message in enumerate(self._parents)}
        self._children: dict[UUID | None, list[UUID]] = defaultdict(list)
        for message, parent in self._parents.items():
            self._children[parent].append(message)

    def __contains__(self, message: UUID) -> bool:
        return message in self._parents

    def branch(self, leaf: UUID | None) -> list[UUID]:
        """From the root to `leaf`; nothing for a message of another conversation."""
        branch = []
        while leaf is not None and leaf in self._parents:
            branch.append(leaf)
            leaf = self._parents[leaf]
        return branch[::-1]

    def siblings(self, message: UUID) -> list[UUID]:
        """The versions of a message, itself included, the oldest first."""
        return self._children[self._parents[message]]

    def children(self, message: UUID) -> list[UUID]:
        return self._children[message]

    def newest_leaf(self, top: UUID | None) -> UUID | None:
        """The newest end of a branch through `top`; of all branches for None. None if there is no message."""
        below, leaves = [top] if top is not None else list(self._children[None]), []
        while below:
            message = below.pop()
            below += self._children[message]
            if not self._children[message]:
                leaves.append(message)
        return max(leaves, key=self._rank.__getitem__, default=None)

    def shown_leaf(self) -> UUID | None:
        """The end of the branch that was shown or asked last, and of what was said below it since."""
        remembered = self._shown_leaf if self._shown_leaf in self._parents else None
        return self.newest_leaf(remembered)

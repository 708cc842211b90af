"""The contract of a store, all of it. `StoreUnderTest` says which fixtures a subclass gives."""

from __future__ import annotations

from postlude.testing.contracts.store_appending import AppendingContract
from postlude.testing.contracts.store_audit import AuditContract
from postlude.testing.contracts.store_call_endings import CallEndingsContract
from postlude.testing.contracts.store_calls import CallsContract
from postlude.testing.contracts.store_inbox import InboxContract
from postlude.testing.contracts.store_lifecycle import LifecycleContract
from postlude.testing.contracts.store_operating import OperatingContract
from postlude.testing.contracts.store_operations import OperationsContract
from postlude.testing.contracts.store_ownership import OwnershipContract
from postlude.testing.contracts.store_reading import ReadingContract
from postlude.testing.contracts.store_receiving import ReceivingContract
from postlude.testing.contracts.store_records import RecordsContract
from postlude.testing.contracts.store_redaction import RedactionContract
from postlude.testing.contracts.store_redaction_sagas import RedactionOfSagasContract
from postlude.testing.contracts.store_saga_joined import SagaJoinedContract
from postlude.testing.contracts.store_saga_reading import SagaReadingContract
from postlude.testing.contracts.store_sagas import SagasContract
from postlude.testing.contracts.store_schema import SchemaContract
from postlude.testing.contracts.store_settling import SettlingContract
from postlude.testing.contracts.store_subjects import SubjectsContract
from postlude.testing.contracts.store_upkeep import UpkeepContract


class StoreContract(
    AppendingContract,
    ReadingContract,
    SettlingContract,
    LifecycleContract,
    OwnershipContract,
    RecordsContract,
    OperatingContract,
    OperationsContract,
    AuditContract,
    SubjectsContract,
    UpkeepContract,
    InboxContract,
    ReceivingContract,
    SagasContract,
    SagaReadingContract,
    SagaJoinedContract,
    CallsContract,
    CallEndingsContract,
    RedactionContract,
    RedactionOfSagasContract,
    SchemaContract,
):
    """Every method of `postlude.ports.store`, by what it does."""
